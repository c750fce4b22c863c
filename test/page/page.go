// Package page tests the status page of bakeryd in a real browser: with three real hosts, of which
// one dies and one restarts, and with the answers of a bakeryd that has ten thousand locks, is in
// trouble, or has hostile names.
//
//	cd test/page && go test -count=1 .
//
// Needs chromium. With -shots DIR it stores pictures there.
package page
