// Package timeline looks at the page of `bakeryctl timeline` in a real browser:
// at journals of three hosts that really ran, of which one died; at such that were doctored, and
// at fifty thousand events. It is a module of its own, so that nothing else needs a browser's protocol.
//
//	cd test/timeline && go test -count=1 .
//
// Needs chromium. With -shots DIR it leaves pictures of what it saw there, to be looked at by people.
package timeline
