package events

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/line"
	"github.com/bakeryd/bakeryd/daemon/text"
)

const (
	// maxFile is the size in bytes at which a file is rotated. One rotated file is kept.
	maxFile = 16 << 20

	// maxLine bounds a line that is read, in bytes. Written lines are much shorter.
	maxLine = 64 << 10

	// maxTail bounds the search for the last event, from the end of a file.
	maxTail = 4 * maxLine

	// maxSeq is above any clock. A line with a greater Seq would hide all later lines.
	maxSeq = 1 << 60

	aside = ".1" // the suffix of the rotated file
)

// errTaken is returned when another process keeps its events in the file.
var errTaken = errors.New("another process writes it")

// file is the file that events are appended to, one line each.
type file struct {
	f    *os.File
	size int64
	last uint64 // Seq of the last event in it, or in the rotated file
}

// openFile opens a file and truncates it after its last whole line. The rest is from a writer
// that was killed, or from a power failure.
func openFile(path string) (*file, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	o := &file{f: f}
	if err := o.takeOver(); err != nil {
		f.Close()
		return nil, fmt.Errorf("continue %s: %w", path, err)
	}
	if o.last == 0 {
		o.last = lastIn(path + aside)
	}
	return o, nil
}

func (o *file) takeOver() error {
	info, err := o.f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("a file of type %v, want a regular one", info.Mode().Type())
	}
	if err := unix.Flock(int(o.f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return errTaken
		}
		return fmt.Errorf("lock it: %w", err)
	}
	tail, at, err := readTail(o.f)
	if err != nil {
		return err
	}
	whole := bytes.LastIndexByte(tail, '\n') + 1
	if o.size = at + int64(whole); o.size < at+int64(len(tail)) {
		if err := o.f.Truncate(o.size); err != nil {
			return err
		}
	}
	o.last = lastSeq(tail[:whole])
	return nil
}

// readTail returns the end of a file, and its offset.
func readTail(f *os.File) (tail []byte, at int64, err error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, 0, err
	}
	at = max(0, size-maxTail)
	tail, err = io.ReadAll(io.NewSectionReader(f, at, size-at))
	return tail, at, err
}

// lastIn returns the Seq of the last event in a file, 0 if there is none.
func lastIn(path string) uint64 {
	f, err := openToRead(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	tail, _, _ := readTail(f) // the part before an error
	return lastSeq(tail)
}

func lastSeq(lines []byte) (last uint64) {
	for line := range bytes.Lines(lines) {
		if seq, ok := seqOf(line); ok {
			last = max(last, seq)
		}
	}
	return last
}

// seqOf returns the Seq of a whole line, which must be its first field.
func seqOf(line []byte) (seq uint64, ok bool) {
	digits, first := bytes.CutPrefix(line, []byte(`{"seq":"`))
	digits, _, quoted := bytes.Cut(digits, []byte{'"'})
	seq, err := strconv.ParseUint(string(digits), 10, 64)
	return seq, first && quoted && err == nil && seq <= maxSeq && bytes.HasSuffix(line, []byte("}\n"))
}

// stillAt reports whether path still names the file, which another process may have removed.
func (o *file) stillAt(path string) bool {
	open, err := o.f.Stat()
	there, gone := os.Lstat(path)
	return err == nil && gone == nil && os.SameFile(open, there)
}

// openToRead opens a file without blocking on a FIFO or device at that path.
func openToRead(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
}

// AppendLine appends the line of an event, as encoding/json writes it, but faster: it runs for every
// grant. It does not escape & and >, which commands often contain.
func (e *Event) AppendLine(to []byte) []byte {
	o := line.WriteHTML(to)
	o.Digits(`"seq":`, e.Seq, true)
	o.Time(`"at":`, e.At)
	line.Number(&o, `"uptime_ms":`, &e.UptimeMS, true)
	o.String(`"kind":`, string(e.Kind))
	o.Text(`"lock":`, &e.Lock)
	line.Number(&o, `"host":`, &e.Host, false)
	o.Text(`"host_name":`, &e.HostName)
	line.Quoted(&o, `"incarnation":`, &e.Incarnation, false)
	line.Number(&o, `"by_host":`, &e.ByHost, false)
	o.Text(`"by_host_name":`, &e.ByHostName)
	o.Text(`"boot_id":`, &e.Boot)
	o.Digits(`"request":`, e.Request, false)
	line.Number(&o, `"pid":`, &e.PID, false)
	o.Text(`"command":`, &e.Command)
	o.Text(`"mode":`, &e.Mode)
	line.Number(&o, `"permits":`, &e.Permits, false)
	o.Digits(`"ticket":`, uint64(e.Ticket), false)
	o.Digits(`"token":`, uint64(e.Token), false)
	for i := range e.Ahead {
		p := &e.Ahead[i]
		o.Item(`"ahead":`, i)
		line.Number(&o, `"host":`, &p.Host, true)
		o.Text(`"host_name":`, &p.HostName)
		o.Text(`"phase":`, &p.Phase)
		o.Text(`"mode":`, &p.Mode)
		o.Digits(`"ticket":`, uint64(p.Ticket), false)
		line.Number(&o, `"pid":`, &p.PID, false)
		o.Text(`"command":`, &p.Command)
		o.Digits(`"request":`, p.Request, false)
		o.EndItem(i == len(e.Ahead)-1)
	}
	line.Number(&o, `"ahead_count":`, &e.AheadCount, false)
	line.Number(&o, `"waited_ms":`, &e.WaitedMS, false)
	line.Number(&o, `"held_ms":`, &e.HeldMS, false)
	line.Number(&o, `"missed":`, &e.Missed, false)
	o.Text(`"reason":`, &e.Reason)
	return append(o.End(), '\n')
}

// Parse parses a line. A journal may still have lines of earlier versions, with incarnations in decimal
// and another name of the boot id.
func (e *Event) Parse(line []byte) error {
	err := json.Unmarshal(line, e)
	if err == nil && !bytes.Contains(line, []byte(`"boot":`)) { // 16 decimal digits look like the others
		return nil
	}
	old := struct {
		*Event
		Incarnation uint64 `json:"incarnation,string"`
		Boot        string `json:"boot"`
	}{Event: new(Event)}
	if json.Unmarshal(line, &old) != nil {
		return err
	}
	*e = *old.Event
	e.Incarnation, e.Boot = text.Hex(old.Incarnation), old.Boot
	return nil
}

// scan iterates over the events of a file above a Seq, in order. An unreadable line becomes a gap.
// An incomplete line at the end is ignored. An error of the file ends the iteration.
func scan(r io.Reader, since uint64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		in := bufio.NewReaderSize(r, maxLine)
		for damaged := false; ; {
			line, err := in.ReadSlice('\n')
			if err != nil && !errors.Is(err, bufio.ErrBufferFull) { // a part of a long line is damaged
				if !errors.Is(err, io.EOF) {
					yield(Event{}, err)
				}
				return
			}
			var e Event
			seq, ok := seqOf(line)
			if !ok || seq > since && (e.Parse(line) != nil || e.Seq != seq) {
				damaged = true
				continue
			}
			if seq > since {
				gap := Event{Seq: seq - 1, At: e.At, UptimeMS: e.UptimeMS, Kind: Gap, Reason: "lines of the journal are damaged"}
				if damaged && !yield(gap, nil) || !yield(e, nil) {
					return
				}
			}
			damaged = false
		}
	}
}
