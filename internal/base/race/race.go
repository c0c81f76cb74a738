// Package race tells tests whether the race detector is on. It allocates where the code does not
// and multiplies memory, so tests that measure either skip.
//
//	on.go   Enabled, with the race detector
//	off.go  Enabled, without it
package race
