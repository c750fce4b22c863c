# bash completion of bakeryd
_bakeryd() {
	local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
	COMPREPLY=()
	case $before in
{{- range .flags}}
{{- if .Choices}}
	--{{.Name}}) COMPREPLY=($(compgen -W '{{.Choices}}' -- "$word")) ;;
{{- else if .IsPath}}
	--{{.Name}}) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
{{- else if .Value}}
	--{{.Name}}) ;;
{{- end}}{{end}}
	*) COMPREPLY=($(compgen -W '{{range .flags}}--{{.Name}} {{end}}' -- "$word")) ;;
	esac
}
complete -F _bakeryd bakeryd
