// Package sanlock compares bakeryd's sanlock socket with sanlock itself. The script calls.py calls
// python3-sanlock and libsanlock of Debian step by step, on three hosts, and prints a line for each
// step. The test runs it against bakeryd, and compares the lines with those of sanlock in real.txt.
// A step that differs must be in differences.md as it is, and each step there must differ.
package sanlock
