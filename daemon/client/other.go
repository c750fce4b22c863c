//go:build !linux

package client

import (
	"context"
	"net"
	"time"
)

// This file makes programs that use the client compile on other systems. There is no connection, so
// no hold: dial fails, and what works on connections is never called.

// socket is never made.
type socket struct{ net.Conn }

func dial(context.Context, string) (net.Conn, error) { return nil, ErrUnsupported }

func dialSocket(context.Context, string) (*socket, error) { return nil, ErrUnsupported }

func (*socket) readSoon([]byte) (int, error) { return 0, ErrUnsupported }

// ExpireReads does nothing.
func (*socket) ExpireReads() {}

// Limit does nothing.
func (*socket) Limit(time.Duration) {}

// Control returns ErrUnsupported.
func (*socket) Control(func(fd uintptr)) error { return ErrUnsupported }

func (*socket) hungUp() bool { return true }

// Close returns ErrUnsupported.
func (d Descriptor) Close() error { return ErrUnsupported }

// Inheritable returns ErrUnsupported.
func Inheritable(int) (Descriptor, error) { return -1, ErrUnsupported }

func openWitness(string) (Descriptor, error) { return -1, ErrUnsupported }
