package flags

import (
	"io"
	"math"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

func TestExplain_ValueRefused_NamesFlagValueAndRemedy(t *testing.T) {
	for arg, want := range map[string]string{
		"--lease=30":       `--lease "30": want a time with its unit, such as 30s`,
		"--lease=soon":     `--lease "soon": want a time with its unit, such as 30s or 5m`,
		"--hosts=x":        `-n, --hosts "x": want a whole number from 1 to 2000`,
		"--hosts=0":        `-n, --hosts "0": want a whole number from 1 to 2000`,
		"-n=1.5":           `-n, --hosts "1.5": want a whole number from 1 to 2000`,
		"--limit=0":        `--limit "0": want a whole number from 1`,
		"--id=x":           `--id "x": want a whole number from 1, or auto`,
		"--id=0":           `--id "0": want a whole number from 1, or auto`,
		"--policy=x":       `--policy "x": want lease, fence or manual`,
		"--policy":         `--policy has no value: want lease, fence or manual`,
		"--name":           `--name has no value: want NAME`,
		"--device":         `--device has no value: want a device`,
		"--address":        `--address has no value: want an address`,
		"---name":          `invalid flag "---name": want --NAME or --NAME=VALUE`,
		"-q":               "unknown flag -q",
		"--force=perhaps":  `--force "perhaps": want true or false`,
		"--listen=nowhere": `--listen "nowhere": failed to parse IP mask: "nowhere"`,
		"--nonesuch":       "unknown flag --nonesuch",
		"--lease":          "--lease has no value: want a time with its unit, such as 30s or 5m",
	} {
		f := someFlags()
		require.EqualError(t, Explain(f, f.Parse([]string{arg})), want)
	}
}

func someFlags() *pflag.FlagSet {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Duration("lease", 0, "")
	hosts, limit, id, policy := 16, 0, 0, "lease"
	IntOr(f, &id, "id", "auto", "")
	Int(f, &hosts, "hosts", "n", 1, 2000, "")
	Int(f, &limit, "limit", "", 1, math.MaxInt, "")
	Choice(f, &policy, "policy", []string{"lease", "fence", "manual"}, "")
	f.String("name", "", "`NAME` of the lockspace")
	f.String("device", "", "block `device` with the lockspace")
	f.String("address", "", "`address` and port")
	f.Bool("force", false, "")
	f.IPMask("listen", nil, "")
	f.Bool("hidden", false, "")
	f.Lookup("hidden").Hidden = true
	return f
}

// The hint names the flag that was probably meant.
func TestHint_UnknownFlag_NamesTheNearest(t *testing.T) {
	for arg, want := range map[string]string{
		"--forec":    "did you mean --force? x --help lists the flags",
		"--fource":   "did you mean --force? x --help lists the flags",
		"--pol=x":    "did you mean --policy? x --help lists the flags",
		"--hiden":    "run x --help",
		"--nonesuch": "run x --help",
		"--x":        "run x --help",
		"-q":         "run x --help",
		"--hosts=0":  "run x --help",
	} {
		f := someFlags()
		require.Equal(t, want, Hint(Explain(f, f.Parse([]string{arg})), "x --help"), arg)
	}
}

func TestValues_ValidValue_IsSet(t *testing.T) {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	hosts, id, policy := 16, 7, "lease"
	IntOr(f, &id, "id", "auto", "1, or auto")
	Int(f, &hosts, "hosts", "n", 1, 2000, "at most `N`")
	Choice(f, &policy, "policy", []string{"lease", "fence"}, "`lease|fence`")
	require.Equal(t, "  -n, --hosts N              at most N (default 16)\n"+
		"      --id int               1, or auto (default 7)\n"+
		"      --policy lease|fence   lease|fence (default \"lease\")\n", f.FlagUsages())
	require.NoError(t, f.Parse([]string{"-n", "2000", "--policy", "fence", "--id", "auto"}))
	require.Equal(t, []any{2000, "fence", 0}, []any{hosts, policy, id})
}

// TestValues_Numbers_AreReadAsByPflag: but an id is decimal, so that 010 of a script is not host 8.
func TestValues_Numbers_AreReadAsByPflag(t *testing.T) {
	for arg, want := range map[string][]int{
		"16": {16, 16}, "+5": {5, 5}, "010": {8, 10}, "0x10": {16, 0}, "0b11": {3, 0}, "1_0": {10, 0}, "0o17": {15, 0},
	} {
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		hosts, id, before := 1, 0, 0
		f.IntVar(&before, "before", 0, "")
		Int(f, &hosts, "hosts", "", 1, 2000, "")
		IntOr(f, &id, "id", "auto", "")
		require.NoError(t, f.Parse([]string{"--hosts", arg, "--before", arg}))
		err := f.Parse([]string{"--id", arg})
		require.Equal(t, want[1] == 0, err != nil, arg)
		require.Equal(t, want, []int{hosts, id}, arg)
		require.Equal(t, before, hosts, arg)
	}
}
