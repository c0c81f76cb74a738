// Package race reports to tests whether the race detector is on. It adds allocations and multiplies
// memory, so tests that measure either skip.
//
//	on.go   Enabled, with the race detector
//	off.go  Enabled, without it
package race
