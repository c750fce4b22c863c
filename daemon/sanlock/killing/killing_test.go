package killing

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/sanlock/registry"
	"github.com/bakeryd/bakeryd/daemon/sanlock/wire"
)

func TestPlan_Next_ByTimeAndRestrictions(t *testing.T) {
	ending := Plan{Term: 10 * time.Second, Kill: 20 * time.Second}
	for _, test := range []struct {
		name     string
		plan     Plan
		killpath string
		restrict uint32
		at       [4]Action // now at 9, 10, 19 and 20 s
	}{
		{"without a killpath", ending, "", 0, [4]Action{Terminate, Terminate, Terminate, Kill}},
		{"with a killpath", ending, "/k", 0, [4]Action{Killpath, Terminate, Terminate, Kill}},
		{"no SIGKILL", ending, "", wire.RestrictSigkill, [4]Action{Terminate, Terminate, Terminate, Terminate}},
		{"no SIGKILL, with a killpath", ending, "/k", wire.RestrictSigkill, [4]Action{Killpath, Terminate, Terminate, Terminate}},
		{"no SIGTERM", ending, "", wire.RestrictSigterm, [4]Action{Kill, Kill, Kill, Kill}},
		{"no SIGTERM, with a killpath", ending, "/k", wire.RestrictSigterm, [4]Action{Killpath, Kill, Kill, Kill}},
		{"neither", ending, "/k", wire.RestrictSigkill | wire.RestrictSigterm, [4]Action{Killpath, Kill, Kill, Terminate}},
		{"no command", ending, "", wire.RestrictAll, [4]Action{Terminate, Terminate, Terminate, Kill}},
		{"removed", Plan{Now: true}, "/k", 0, [4]Action{Kill, Kill, Kill, Kill}},
		{"removed, no SIGKILL", Plan{Now: true}, "/k", wire.RestrictSigkill, [4]Action{Terminate, Terminate, Terminate, Terminate}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := &registry.Client{KillPath: test.killpath, Restrict: test.restrict}
			for i, now := range []time.Duration{9, 10, 19, 20} {
				require.Equal(t, test.at[i], test.plan.Next(c, now*time.Second), "at %d s", now)
			}
		})
	}
}

func TestArgs_AsSanlockSplitsThem(t *testing.T) {
	for text, want := range map[string][]string{
		"":                                      nil,
		"   ":                                   nil,
		"a":                                     {"a"},
		"a  b\tc\n":                             {"a", "b", "c"},
		`a\ b c`:                                {"a b", "c"},
		`a\\ b`:                                 {`a\`, "b"},
		`a\nb c`:                                {"a"}, // a backslash before another byte
		"a b\x01c d":                            {"a", "b"},
		"a b\x7fc":                              {"a", "b"},
		"gärtner b":                             {"g"},
		`--kill vg 4711`:                        {"--kill", "vg", "4711"},
		strings.Repeat("x", wire.HelperArgsLen): {strings.Repeat("x", wire.HelperArgsLen)},
	} {
		require.Equal(t, want, Args(text), "%q", text)
	}
}
