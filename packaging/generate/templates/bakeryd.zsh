#compdef bakeryd
_arguments{{range .flags}} \
	'{{if eq .Name "fence-device"}}*{{end}}--{{.Name}}{{if .Value}}={{end}}[{{zsh .About}}]
{{- with .Value}}:{{.}}:{{end}}{{if .Choices}}({{.Choices}}){{else if .IsPath}}_files{{else if .Value}} {{end}}'
{{- end}}
