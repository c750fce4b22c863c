// Package top tests bakeryctl top in a real terminal, tmux: with three real hosts, of which one
// dies and one restarts, at sizes from one letter to a large screen, with and without colours.
//
//	cd test/top && go test -count=1 .
//
// Needs tmux, and chromium for the picture. With -shots DIR it stores a picture there. The picture
// of packaging/docs/monitoring.md is made with -shots ../../packaging/docs.
package top
