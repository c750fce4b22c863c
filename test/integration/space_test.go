//go:build integration

package integration

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/standstill"
)

var (
	// lease is short, because some tests wait for its end, but longer than a disk may be busy with
	// other writes.
	lease = standstill.Outlives(5 * time.Second)

	// briefLease is for tests whose image is in memory, where only the processors can be busy.
	briefLease = standstill.Outlives(3 * time.Second)
)

const (
	imageSize = 2 << 20
	guardByte = 0xA5
)

var spaces atomic.Int32

// space is a lockspace in a file, or on several disks in one file each; every host has its own loop
// devices. The rest of each file is filled with guard bytes.
type space struct {
	t       *testing.T
	dir     string
	file    string
	more    []string // the files of the other member disks; nil if there is one disk
	dev     string   // a loop device over file that no host uses
	sector  int
	uuid    layout.UUID
	geo     layout.Geometry
	guard   int64 // offset of the guard bytes
	damaged bool  // damaged records at the end of the test are no error
}

// leased returns the flag of bakeryctl format for a lease.
func leased(d time.Duration) string { return "--lease=" + standstill.Outlives(d).String() }

// leasedToWatch is leased for tests that wait out a damaged record. It must be unreadable in reads
// no further apart than timing.Times.Alive, a fifth of a lease; a host that is paused for longer
// starts the wait again.
func leasedToWatch(d time.Duration) string { return leased(d + 3*standstill.Outlives(0)/2) }

// newImage creates the file and the loop device, without a lockspace.
func newImage(t *testing.T, sector int) *space {
	t.Helper()
	return imageBelow(t, base, sector)
}

func imageBelow(t *testing.T, dir string, sector int) *space {
	t.Helper()
	// Short, because socket paths are limited.
	s := &space{t: t, sector: sector, dir: filepath.Join(dir, strconv.Itoa(int(spaces.Add(1)))), guard: imageSize}
	require.NoError(t, os.Mkdir(s.dir, 0o755))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(s.dir)) })
	s.file = filepath.Join(s.dir, "image")
	require.NoError(t, os.WriteFile(s.file, make([]byte, imageSize), 0o600))
	s.dev = s.loop()
	return s
}

// newSpace creates a lockspace, with flags of bakeryctl format.
func newSpace(t *testing.T, sector int, flags ...string) *space {
	t.Helper()
	return newImage(t, sector).withSpace(append([]string{"--lease", lease.String()}, flags...)...)
}

// briefSpace creates a lockspace with the brief lease, in memory.
func briefSpace(t *testing.T, flags ...string) *space {
	t.Helper()
	return imageBelow(t, memory, 512).withSpace(append([]string{"--lease", briefLease.String()}, flags...)...)
}

// briefPair creates such a lockspace with two running hosts, for a test that runs in parallel.
func briefPair(t *testing.T) (s *space, a, b *host) {
	t.Helper()
	t.Parallel()
	s = briefSpace(t)
	return s, s.host(1), s.host(2)
}

func (s *space) withSpace(flags ...string) *space {
	s.t.Helper()
	// Format requires zeroes where a superblock or its copy may be.
	s.geo = layout.Geometry{Stride: s.sector, Hosts: 8, Locks: 16}
	for _, file := range s.files() {
		s.setGuard(file, max(s.geo.Size(), layout.HeadSize))
	}
	s.format(append([]string{"--hosts", "8", "--locks", "16"}, flags...)...)
	s.t.Cleanup(s.check)
	return s
}

// files returns the files of all disks.
func (s *space) files() []string { return append([]string{s.file}, s.more...) }

func (s *space) setGuard(file string, from int64) {
	s.guard = from
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	require.NoError(s.t, err)
	_, err = f.WriteAt(bytes.Repeat([]byte{guardByte}, int(imageSize-from)), from)
	require.NoError(s.t, err)
	require.NoError(s.t, f.Sync())
	require.NoError(s.t, f.Close())
}

func (s *space) format(flags ...string) {
	s.t.Helper()
	var made struct {
		UUID                 layout.UUID
		Hosts, Locks, Stride int
		Size                 int64
	}
	out := must(s.t, append([]string{plain.bakeryctl, "format", s.dev, "--json"}, flags...)...)
	require.NoError(s.t, json.Unmarshal([]byte(out), &made))
	s.uuid, s.geo = made.UUID, layout.Geometry{Stride: made.Stride, Hosts: made.Hosts, Locks: made.Locks}
	require.Equal(s.t, s.sector, s.geo.Stride)
	require.Equal(s.t, s.geo.Size(), made.Size)
	require.LessOrEqual(s.t, made.Size, s.guard)
}

// loop returns a new loop device over the file.
func (s *space) loop() string {
	s.t.Helper()
	return loopOver(s.t, s.file, s.sector)
}

func loopOver(t *testing.T, file string, sector int) string {
	t.Helper()
	direct := "on"
	if filepath.Dir(filepath.Dir(file)) == memory {
		direct = "off" // not all kernels have direct IO on tmpfs
	}
	dev := strings.TrimSpace(must(t, "losetup", "--direct-io="+direct, "--sector-size", strconv.Itoa(sector), "-f", "--show", file))
	t.Cleanup(func() {
		must := func(argv ...string) string { // t.Context has ended
			out, err := output(argv...)
			require.NoError(t, err)
			return out
		}
		must("losetup", "-d", dev)
		eventually(t, dev+" is detached", func() bool {
			backing, err := os.ReadFile("/sys/block/" + filepath.Base(dev) + "/loop/backing_file")
			return err != nil || !strings.HasPrefix(string(backing), file)
		})
	})
	return dev
}

// check checks the records on the disks and the guard bytes.
func (s *space) check() {
	if s.more == nil {
		for record := range s.dump() {
			if record.Error != "" && !s.damaged {
				s.t.Errorf("damaged record at %d: %s", record.Offset, record.Error)
			}
		}
	}
	for i, file := range s.files() {
		image, err := os.ReadFile(file)
		require.NoError(s.t, err)
		require.Len(s.t, image, imageSize)
		if s.more != nil && !s.damaged {
			s.checkCopies(image, i+1)
		}
		for i, b := range image[s.guard:] {
			if b != guardByte {
				s.t.Fatalf("byte %d behind the lockspace of %d bytes was overwritten", s.guard+int64(i), s.geo.Size())
			}
		}
	}
}

// dumped is a line of bakeryctl dump --json.
type dumped struct {
	Offset int64
	Kind   string
	Lock   *int `json:"lock_number"`
	Host   int
	Error  string
	Record struct {
		State    layout.HostState
		Name     string
		Sequence string
		Phase    layout.Phase
		Ticket   layout.Ticket
		UUID     layout.UUID
	}
}

func (s *space) dump() func(yield func(dumped) bool) {
	out, err := output(plain.bakeryctl, "dump", s.dev, "--json")
	require.NoError(s.t, err)
	return func(yield func(dumped) bool) {
		for line := range strings.Lines(out) {
			var d dumped
			require.NoError(s.t, json.Unmarshal([]byte(line), &d), line)
			if !yield(d) {
				return
			}
		}
	}
}

// slot returns a host's slot in a lock from the disk.
func (s *space) slot(lock, host int) (found dumped) {
	s.t.Helper()
	for d := range s.dump() {
		if d.Kind == "slot" && *d.Lock == lock && d.Host == host {
			found = d
		}
	}
	return found
}

// hostRecord returns a host's record from the disk.
func (s *space) hostRecord(id int) (found dumped) {
	s.t.Helper()
	for d := range s.dump() {
		if d.Kind == "host" && d.Host == id {
			found = d
		}
	}
	return found
}

// damage overwrites the record at an address with garbage, through a device that no host uses.
func (s *space) damage(at int64) {
	s.t.Helper()
	dev, err := blockdev.Open(s.dev, blockdev.Options{})
	require.NoError(s.t, err)
	defer dev.Close()
	junk := blockdev.Alloc(s.geo.Stride)
	for i := range junk {
		junk[i] = byte(7 * i)
	}
	require.NoError(s.t, dev.Write(junk, at))
}
