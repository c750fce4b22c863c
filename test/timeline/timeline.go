// Package timeline tests the page of `bakeryctl timeline` in a real browser: with the journals of
// three real hosts, of which one died; with edited ones; and with fifty thousand events. It is a
// separate module, so that nothing else needs a browser's protocol.
//
//	cd test/timeline && go test -count=1 .
//
// Needs chromium. With -shots DIR it stores pictures there.
package timeline
