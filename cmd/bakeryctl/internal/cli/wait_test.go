package cli

import (
	"testing"
	"time"
)

func TestWait_Set(t *testing.T) {
	tests := []struct {
		text string
		want time.Duration
		ok   bool
	}{
		{"0", 0, true},
		{"5", 5 * time.Second, true},
		{"1.5", 1500 * time.Millisecond, true},
		{".25", 250 * time.Millisecond, true},
		{"1e3", 1000 * time.Second, true},
		{"0.0000000001", 1, true}, // not 0, which would not wait at all
		{"300ms", 300 * time.Millisecond, true},
		{"1h30m", 90 * time.Minute, true},
		{"3153600000", MaxWait, true},
		{"3153600001", 0, false},
		{"1e300", 0, false},
		{"-1", 0, false},
		{"-1s", 0, false},
		{"inf", 0, false},
		{"-inf", 0, false},
		{"nan", 0, false},
		{"1e999", 0, false},
		{"999999999h", 0, false},
		{"five", 0, false},
		{"5 s", 0, false},
		{"", 0, false},
	}
	for _, test := range tests {
		var wait Wait
		err := wait.Set(test.text)
		if got := time.Duration(wait); got != test.want || (err == nil) != test.ok {
			t.Errorf("%q: %v, %v; want %v, ok %v", test.text, got, err, test.want, test.ok)
		}
	}
}
