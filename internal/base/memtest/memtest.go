// Package memtest measures the memory of a test's own process.
package memtest

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Bytes returns a field of this process's status in bytes, such as "VmHWM:" (proc_pid_status(5)).
func Bytes(t testing.TB, name string) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), name)
	var kib int
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
