package wire

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The texts are those of sanlock_res_to_str of libsanlock_client 3.8.5, except where a comment says
// so. sanlock_state_to_args reads all of them as the resource next to them.
func TestResource_String_IsThatOfSanlock(t *testing.T) {
	for text, r := range map[string]Resource{
		"LS:R:/dev/a:0:7":  {Lockspace: "LS", Name: "R", Lver: 7, Flags: ResLVER, NumDisks: 1, Disks: []Disk{{"/dev/a", 0}}},
		"LS:R:/dev/a:0:SH": {Lockspace: "LS", Name: "R", Flags: ResShared, NumDisks: 1, Disks: []Disk{{"/dev/a", 0}}},
		`LS:R:/dev/a\ b:0:/d\:e:1048576:18446744073709551615`: {
			Lockspace: "LS", Name: "R", Lver: 1<<64 - 1, Flags: ResLVER, NumDisks: 2,
			Disks: []Disk{{"/dev/a b", 0}, {"/d:e", 1048576}},
		},
		// Sanlock writes /dev/a\b, which its library reads as /dev/ab.
		`LS:R:/dev/a\\b:0:1`: {Lockspace: "LS", Name: "R", Lver: 1, Flags: ResLVER, NumDisks: 1, Disks: []Disk{{`/dev/a\b`, 0}}},
		// Sanlock writes names as they are.
		`L\:S:R\ \\x:/dev/a:0:1`: {Lockspace: "L:S", Name: `R \x`, Lver: 1, Flags: ResLVER, NumDisks: 1, Disks: []Disk{{"/dev/a", 0}}},
	} {
		require.Equal(t, text, r.String())
	}
}

func TestLockspace_String(t *testing.T) {
	require.Equal(t, `LS:3:/tmp/rec/disk\:1:1048576`, space(mib).String())
}

func TestInquiry(t *testing.T) {
	b, err := Inquiry(nil)
	require.NoError(t, err)
	require.Empty(t, b)
	b, err = Inquiry([]Resource{onDisk("A", 0, 0), onDisk("B C", 1, ResShared)})
	require.NoError(t, err)
	require.Equal(t, `LS:A:/tmp/rec/disk\:1:0:0 LS:B\ C:/tmp/rec/disk\:1:1:SH`+"\x00", string(b))

	r := onDisk("", 0, 0)
	fits := MaxResourceText - 1 - len(r.String())
	r.Name = strings.Repeat("x", fits)
	_, err = Inquiry([]Resource{r})
	require.NoError(t, err)
	r.Name += "x"
	_, err = Inquiry([]Resource{r})
	require.Equal(t, Errno(syscall.ELIBACC), err)
}
