// Package page looks at the status page of bakeryd in a real browser: at three hosts that really run, of which one dies and
// one is restarted, and at what a bakeryd might say that has ten thousand locks, is in trouble, or is told names that are
// meant to do harm.
//
//	cd test/page && go test -count=1 .
//
// Needs chromium. With -shots DIR it leaves pictures of what it saw there, to be looked at by people.
package page
