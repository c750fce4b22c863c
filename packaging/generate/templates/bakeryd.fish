# fish completion of bakeryd
complete -c bakeryd -f
{{range .flags}}complete -c bakeryd -l {{.Name}}
{{- if .Choices}} -x -a '{{.Choices}}'{{else if .IsPath}} -r -F{{else if .Value}} -x{{end}} -d '{{fish .About}}'
{{end -}}
