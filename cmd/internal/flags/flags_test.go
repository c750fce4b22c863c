package flags

import (
	"io"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

func TestExplain_ValueRefused_NamesFlagValueAndRemedy(t *testing.T) {
	for arg, want := range map[string]string{
		"--lease=30":       `--lease "30": want a time with its unit, such as 30s`,
		"--lease=soon":     `--lease "soon": want a time with its unit, such as 30s or 5m`,
		"--hosts=x":        `--hosts "x": want a whole number`,
		"-n=1.5":           `--hosts "1.5": want a whole number`,
		"--force=perhaps":  `--force "perhaps": want true or false`,
		"--listen=nowhere": `--listen "nowhere": failed to parse IP mask: "nowhere"`,
		"--nonesuch":       "unknown flag: --nonesuch",
		"--lease":          "flag needs an argument: --lease",
	} {
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.SetOutput(io.Discard)
		f.Duration("lease", 0, "")
		f.IntP("hosts", "n", 0, "")
		f.Bool("force", false, "")
		f.IPMask("listen", nil, "")
		require.EqualError(t, Explain(f.Parse([]string{arg})), want)
	}
}
