package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// A request that follows another one, to see whether the connection can continue.
var next = req(Version, 0, 0, 0).Append(nil)

// set returns message with the 32-bit fields at these offsets changed.
func set(message []byte, fields map[int]uint32) []byte {
	message = bytes.Clone(message)
	for at, v := range fields {
		binary.NativeEndian.PutUint32(message[at:], v)
	}
	return message
}

func TestRead_InvalidRequest_SaysCodeAndWhetherToContinue(t *testing.T) {
	e2big, erange, einval := Errno(syscall.E2BIG), Errno(syscall.ERANGE), Errno(syscall.EINVAL)
	register := req(Register, 0, 0, 0).Append(nil)
	acquire := req(Acquire, 0, 0, Self, onDisk("A", 0, 0), onDisk("B", 0, 0)).Append(nil)
	noEnd := req(Align, 0, 0, 0, Disk{Path: strings.Repeat("x", PathLen-1)}).Append(nil)
	noEnd[HeaderSize+PathLen-1] = 'x'
	fiveDisks := Resource{NumDisks: 5, Disks: make([]Disk, 5)}
	nine := make([]any, 9)
	for i := range nine {
		nine[i] = res("A", 0)
	}
	const version, command, length, data, numDisks = 4, 8, 16, 24, HeaderSize + ResourceSize - 4
	for text, test := range map[string]struct {
		message []byte
		code    Code
		fatal   bool
	}{
		"read register request: magic number 0x1 instead of 0x4282010":                           {set(register, map[int]uint32{0: 1}), OK, true},
		"read register request: protocol 0x10000 is later than 0x1":                              {set(register, map[int]uint32{version: 0x10000}), OK, true},
		"read command 0 request: unknown command":                                                {set(register, map[int]uint32{command: 0}), OK, true},
		"read command 41 request: unknown command":                                               {set(register, map[int]uint32{command: 41}), OK, true},
		"read command 4294967295 request: unknown command":                                       {set(register, map[int]uint32{command: 1<<32 - 1}), OK, true},
		"read register request: length 31, not from 32 to 1048576":                               {set(register, map[int]uint32{length: 31}), einval, true},
		"read acquire request: length 1048577, not from 32 to 1048576":                           {set(acquire, map[int]uint32{length: MaxSkip + 1}), einval, true},
		"read set_lvb request: 1048576 bytes, more than 34392":                                   {req(SetLVB, 0, 0, 0, res("A", 0), make([]byte, MaxSkip-HeaderSize-ResourceSize)).Append(nil), e2big, false},
		"read set_lvb request: a value of 4097 bytes, more than 4096":                            {req(SetLVB, 0, 0, 0, res("A", 0), make([]byte, MaxLVB+1)).Append(nil), e2big, false},
		"read acquire request: 9 resources, more than 8":                                         {set(acquire, map[int]uint32{data: 9}), e2big, false},
		"read acquire request: 4294967295 resources, more than 8":                                {set(acquire, map[int]uint32{data: 1<<32 - 1}), e2big, false},
		"read release request: 9 resources, more than 8":                                         {req(Release, 0, 9, Self, nine...).Append(nil), e2big, false},
		`read acquire request: resource "A" has 0 disks, not from 1 to 4`:                        {set(acquire, map[int]uint32{numDisks: 0}), erange, false},
		`read read_resource request: resource "" has 5 disks, not from 1 to 4`:                   {req(ReadResource, 0, 0, 0, fiveDisks).Append(nil), erange, false},
		`read align request: path "` + strings.Repeat("x", 40) + `" has no zero byte at its end`: {noEnd, einval, false},
		"read release request: 1 resources with flags 0x2, which need 2":                         {req(Release, RelRename, 1, Self, res("A", 0)).Append(nil), einval, false},
		"read release request: 0 resources with flags 0x4, which need 1":                         {req(Release, RelOrphan, 0, Self).Append(nil), einval, false},
		"read acquire request: the input ends before the body does":                              {set(acquire, map[int]uint32{length: 34392}), Errno(syscall.ENOTCONN), true},
		"read get_hosts request: a body of 0 bytes, which is not the length of its contents":     {set(register, map[int]uint32{command: uint32(GetHosts)}), einval, true},
	} {
		in := bytes.NewReader(append(bytes.Clone(test.message), next...))
		q, err := Read(in)
		require.Nil(t, q, text)
		var invalid *Error
		require.ErrorAs(t, err, &invalid, text)
		require.EqualError(t, err, text)
		require.Equal(t, test.code, invalid.Code, text)
		require.Equal(t, test.fatal, invalid.Fatal, text)
		if !test.fatal {
			q, err := Read(in)
			require.NoError(t, err, text)
			require.Equal(t, Version, q.Command, text)
		}
	}
}

func TestRead_LengthOfAnotherBody_IsFatal(t *testing.T) {
	for call, message := range golden(t) {
		if !strings.HasSuffix(call, ">") || strings.HasPrefix(call, "set_lvb") {
			continue // a lock value may have any length
		}
		q, err := Read(bytes.NewReader(message))
		require.NoError(t, err)
		wrong := []int{len(message) + 1}
		if len(message) > HeaderSize {
			wrong = append(wrong, len(message)-1)
		}
		for _, n := range wrong {
			other := set(append(bytes.Clone(message), 0)[:n], map[int]uint32{16: uint32(n)})
			_, err := Read(bytes.NewReader(other))
			var invalid *Error
			require.ErrorAs(t, err, &invalid, "%s of %d bytes", call, n)
			require.True(t, invalid.Fatal, call)
			require.Equal(t, Errno(syscall.EINVAL), invalid.Code)
			require.Equal(t, q.Command, invalid.Header.Command)
		}
	}
}

func TestRead_WithinLimits_IsAccepted(t *testing.T) {
	largest := make([]any, MaxResources)
	for i := range largest {
		r := onTwoDisks(full, 1<<63, 0)
		r.Disks = append(r.Disks, Disk{strings.Repeat("x", PathLen-1), 1}, Disk{})
		r.NumDisks = MaxDisks
		largest[i] = r
	}
	for text, q := range map[string]*Request{
		"longest":       req(Acquire, 0, MaxResources, Self, largest...),
		"no resources":  req(Acquire, 0, 0, Self, strings.Repeat("o", NameLen)),
		"longest value": req(SetLVB, 0, 0, 0, res("A", 0), make([]byte, MaxLVB)),
		"release all":   req(Release, RelAll|RelRename, 1, Self, res("A", 0)),
	} {
		message := q.Append(nil)
		require.LessOrEqual(t, len(message), MaxMessage)
		got, err := Read(bytes.NewReader(message))
		require.NoError(t, err, text)
		q.Length = uint32(len(message))
		require.Equal(t, q, got, text)
	}
	for _, test := range []struct {
		command Command
		version uint32
	}{{Register, 0}, {Register, 0xffff}, {Version, 0x10000}} {
		q := req(test.command, 0, 0, 0)
		q.Version = test.version
		_, err := Read(bytes.NewReader(q.Append(nil)))
		require.NoError(t, err)
	}
	// The commands of "sanlock client" send a length of 32, whatever follows.
	for _, c := range []Command{HostStatus, Renewal} {
		message := req(c, 0, 0, 0, Lockspace{Name: "LS"}).Append(nil)
		q, err := Read(bytes.NewReader(set(message, map[int]uint32{16: HeaderSize + LockspaceSize})))
		require.NoError(t, err)
		require.Equal(t, "LS", q.Lockspace.Name)
	}
}

func TestRead_InputEndsOrFails_ReturnsItsError(t *testing.T) {
	_, err := Read(strings.NewReader(""))
	require.Equal(t, io.EOF, err)
	_, err = Read(bytes.NewReader(next[:5]))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	broken := errors.New("broken")
	message := req(GetHosts, 0, 0, 0).Append(nil)
	tooLong := set(message, map[int]uint32{16: MaxSkip})
	for _, start := range [][]byte{nil, message[:HeaderSize], message[:99], tooLong} {
		_, err := Read(io.MultiReader(bytes.NewReader(start), iotest.ErrReader(broken)))
		require.ErrorIs(t, err, broken)
		var invalid *Error
		require.False(t, errors.As(err, &invalid))
	}
}

func TestCommandAndCode_HaveTexts(t *testing.T) {
	for c := Register; c.known(); c++ {
		require.NotEmpty(t, c.String(), uint32(c))
	}
	require.Equal(t, "write_resource", WriteResource.String())
	require.Equal(t, "command 41", fmt.Sprint(RebuildRindex+1))
	require.Equal(t, "0", OK.String())
	require.Equal(t, "1048576", Code(mib).String())
	require.Equal(t, "-11 (resource temporarily unavailable)", Errno(syscall.EAGAIN).String())
	require.Equal(t, "-243 (a live host holds the resource)", AcquireIdlive.Error())
	require.Equal(t, "-999", Code(-999).String())
}

func TestAppend_TextTooLong_IsCut(t *testing.T) {
	long := strings.Repeat("x", 5000)
	b := AppendLockspace(nil, Lockspace{Name: long, Disk: Disk{Path: long}})
	require.Len(t, b, LockspaceSize)
	require.Zero(t, b[NameLen+16+PathLen-1])
	require.Len(t, AppendResource(nil, Resource{Lockspace: long, Name: long}), ResourceSize)
	state := AppendState(nil, State{Name: long, Text: long})
	require.Len(t, state, StateSize+MaxStateText)
	require.Equal(t, uint32(MaxStateText), binary.NativeEndian.Uint32(state[72:]))
	require.Zero(t, state[len(state)-1])
}

func TestAnswer_Version_CanBeChanged(t *testing.T) {
	b := Answer{Command: Version, Version: 7}.Append(nil)
	require.Equal(t, uint32(7), binary.NativeEndian.Uint32(b[4:]))
}
