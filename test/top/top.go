// Package top looks at bakeryctl top in a real terminal: tmux, with three hosts that really run, of which one dies and one is
// restarted, at sizes from one letter to a large screen, with and without colours.
//
//	cd test/top && go test -count=1 .
//
// Needs tmux, and chromium for the picture. With -shots DIR it leaves a picture of what it saw there, to be looked at by
// people: that of packaging/docs/monitoring.md is made by -shots ../../packaging/docs.
package top
