package fence

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestSense(t *testing.T) {
	fixed := func(key byte, code uint16) []byte { return (&nexus{}).check(key, code).sense }
	described := func(key byte, code uint16) []byte { return (&nexus{descriptor: true}).check(key, code).sense }
	for _, tt := range []struct {
		name  string
		sense []byte
		want  error // nil: none of these errors
		text  string
	}{
		{"unit attention", fixed(6, 0x2a05), errAgain, "registrations preempted"},
		{"unit attention, descriptors", described(6, 0x2900), errAgain, "power on or reset"},
		{"illegal request", fixed(5, 0x2400), errRefused, "invalid field in CDB"},
		{"illegal request, descriptors", described(5, 0x2000), errRefused, "invalid command operation code"},
		{"no room", fixed(5, 0x5504), nil, "insufficient registration resources"},
		{"aborted", described(0xb, 0x4700), errAgain, "47/00"},
		{"not ready", fixed(2, 0x0401), errAgain, "04/01"},
		{"medium error", fixed(3, 0x1100), nil, "sense key 3, code 11/00"},
		{"short", []byte{0x70, 0, 6}, errAgain, "sense key 6"},
		{"too short", []byte{0x70, 0}, nil, "no sense data"},
		{"descriptors too short", []byte{0x72, 6, 0x29}, nil, "no sense data"},
		{"none", nil, nil, "no sense data"},
		{"unknown format", []byte{0x7f, 6, 6, 6}, nil, "no sense data"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := scsiResult{status: statusCheckCondition, sense: tt.sense}.err()
			require.ErrorContains(t, err, tt.text)
			for _, sort := range []error{errAgain, errRefused, errConflict} {
				require.Equal(t, sort == tt.want, errors.Is(err, sort))
			}
		})
	}
	require.ErrorIs(t, scsiResult{status: 0x18}.err(), errConflict)
	require.ErrorIs(t, scsiResult{status: 0x08}.err(), errAgain)
	require.ErrorContains(t, scsiResult{status: 0x30}.err(), "status 30")
}

// answer is a scsiDevice with one fixed answer.
type answer struct {
	data  []byte
	moved int
}

func (a answer) send(_, data []byte, _ bool) (scsiResult, error) {
	copy(data, a.data)
	return scsiResult{moved: a.moved}, nil
}

func TestBrokenAnswers(t *testing.T) {
	for _, tt := range []struct {
		answer answer
		want   string
	}{
		{answer{nil, 4}, "4 bytes, want 8"},
		{answer{[]byte{0, 0, 0, 1, 0, 0, 0, 16}, 8}, "8 bytes of 24 came"},
		{answer{[]byte{0, 0, 0, 1, 0, 0, 0, 4, 1, 2, 3, 4}, 12}, "4 bytes, want 16"},
		{answer{[]byte{0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff}, 256}, "at most"},
	} {
		_, err := scsi{dev: tt.answer}.state()
		require.ErrorContains(t, err, tt.want)
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add([]byte{0x70, 0, 6, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x29, 0})
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = parseSense(b).String()
		_, _ = scsi{dev: answer{b, len(b)}}.state()
		if len(b) >= 64 {
			parseReport(b, true)
			parseReport(b, false)
		}
	})
}

func TestOutcome(t *testing.T) {
	disk, namespace := kernel{}, kernel{namespace: 1}
	for _, tt := range []struct {
		name string
		err  error
		want error
	}{
		{"conflict", disk.outcome("x", 0x18, nil), errConflict},
		{"check condition", disk.outcome("x", 2, nil), errAgain},
		{"check condition, old kernel", disk.outcome("x", 0x08000002, nil), errAgain},
		{"path failed", disk.outcome("x", 0x10000, nil), errAgain},
		{"path may come back", disk.outcome("x", 0xe0000, nil), errAgain},
		{"NVMe conflict, old kernel", namespace.outcome("x", 0x4083, nil), errConflict},
		{"NVMe without reservations, old kernel", namespace.outcome("x", 0x4001, nil), errRefused},
		{"NVMe error", namespace.outcome("x", 2, nil), errAgain},
		{"no call", disk.outcome("x", 0, unix.ENOTTY), errRefused},
		{"no operation", disk.outcome("x", 0, unix.EOPNOTSUPP), errRefused},
		{"invalid", disk.outcome("x", 0, unix.EINVAL), errRefused},
		{"target error", disk.outcome("x", 0, unix.EREMOTEIO), errRefused},
		{"suspended", disk.outcome("x", 0, unix.EAGAIN), errAgain},
		{"conflict as errno", disk.outcome("x", 0, unix.EBADE), errConflict},
		{"not permitted", disk.outcome("x", 0, unix.EPERM), unix.EPERM},
		{"gone", disk.outcome("x", 0, unix.ENODEV), unix.ENODEV},
	} {
		require.ErrorIs(t, tt.err, tt.want, tt.name)
	}
	require.NoError(t, disk.outcome("x", 0, nil))
	require.ErrorContains(t, disk.outcome("x", 0x40, nil), "device status 0x40")
}

// The numbers of the calls in linux/pr.h and linux/nvme_ioctl.h on x86-64.
func TestCallNumbers(t *testing.T) {
	require.Equal(t, []uint32{0x401870c8, 0x401070c9, 0x401870cb, 0x401870cc, 0x4e40, 0xc0484e43},
		[]uint32{ioctlRegister, ioctlReserve, ioctlPreempt, ioctlPreemptAbort, ioctlNVMeID, ioctlNVMeCommand})
	for n, want := range []Type{1, 3, 5, 6, 7, 8, 0xff} {
		report := make([]byte, 24)
		report[4] = byte(n + 1)
		state, _ := parseReport(report, false)
		require.Equal(t, want, state.Type)
	}
	require.Equal(t, WriteExclusiveAllRegistrants, linuxTypes[prWriteExclAllReg])
}

func TestNVMeReport(t *testing.T) {
	for _, extended := range []bool{false, true} {
		head, size, key := 24, 24, 16
		if extended {
			head, size, key = 64, 64, 8
		}
		buf := make([]byte, head+2*size)
		buf[4], buf[5] = 5, 2
		le.PutUint64(buf[head+key:], keyA)
		le.PutUint64(buf[head+size+key:], keyB)
		state, all := parseReport(buf, extended)
		require.True(t, all)
		require.Equal(t, State{Keys: []uint64{keyA, keyB}, Held: true, Type: WriteExclusiveAllRegistrants}, state)
		_, all = parseReport(buf[:len(buf)-1], extended)
		require.False(t, all)
	}
}

func TestMultipath(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"sda", "mpath/slaves/sda", "mpath/slaves/sdb", "lv/slaves", "pv/slaves/sda"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, d), 0o700))
	}
	require.NoError(t, os.Symlink("../../mpath", filepath.Join(dir, "lv/slaves/dm-0")))
	for name, want := range map[string]bool{"sda": false, "mpath": true, "lv": true, "pv": false} {
		require.Equal(t, want, multipath(filepath.Join(dir, name)+"/"), name)
	}
}

func TestNoDevice(t *testing.T) {
	file := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.WriteFile(file, make([]byte, 1<<20), 0o600))
	requireUnsupported(t, file)
	requireUnsupported(t, "/dev/null")
	a, err := New(Config{Agent: "pr", Key: 1, Devices: []string{file + "x"}})
	require.NoError(t, err)
	require.ErrorIs(t, a.Register(t.Context()), os.ErrNotExist)
}

func TestLoopDevice(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIP: attaching a loop device needs root")
	}
	requireUnsupported(t, attachLoop(t))
}

func requireUnsupported(t *testing.T, path string) {
	t.Helper()
	a, err := New(Config{Agent: "pr", Key: 1, Devices: []string{path}})
	require.NoError(t, err)
	for _, err := range []error{a.Register(t.Context()), a.Fence(t.Context(), targetB), a.Unregister(t.Context())} {
		require.ErrorIs(t, err, ErrUnsupported)
		require.ErrorContains(t, err, path)
	}
	_, err = ReadState(t.Context(), path)
	require.ErrorIs(t, err, ErrUnsupported)
}

// attachLoop attaches a loop device until the test ends.
func attachLoop(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.WriteFile(path, make([]byte, 1<<20), 0o600))
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer file.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		t.Skip("SKIP: no loop devices here: ", err)
	}
	defer control.Close()
	for range 20 { // other processes take loop devices too
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		require.NoError(t, err)
		name := fmt.Sprintf("/dev/loop%d", n)
		loop, err := os.OpenFile(name, os.O_RDWR, 0)
		require.NoError(t, err)
		if unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_SET_FD, int(file.Fd())) != nil {
			loop.Close()
			continue
		}
		t.Cleanup(func() {
			require.NoError(t, unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_CLR_FD, 0))
			loop.Close()
		})
		return name
	}
	t.Fatal("no free loop device")
	return ""
}
