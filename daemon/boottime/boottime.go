// Package boottime tells the time since the machine booted, and rings at a
// moment of it. Unlike the clock of Go's timers it goes on while the machine
// sleeps, as leases do, and no step of the wall clock changes it.
//
// With the build tag sim it is the clock of testing/synctest instead, where
// time passes only while everybody waits.
package boottime
