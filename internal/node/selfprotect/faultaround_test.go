package selfprotect

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel maps only the page that is read, and not its neighbors.
func TestNeighborsAreNotMapped(t *testing.T) {
	f, err := newFaultAround()
	if err != nil {
		t.Skip(err)
	}
	defer func() { _ = unix.Close(int(f.fd)) }()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, make([]byte, 1<<20), 0o600); err != nil { // in the page cache
		t.Fatal(err)
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for _, off := range []bool{false, true} {
		b, err := unix.Mmap(int(file.Fd()), 0, 1<<20, unix.PROT_READ, unix.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		begin := uint64(uintptr(unsafe.Pointer(&b[0])))
		if off {
			if err := f.disable(begin, begin+1<<20); err != nil {
				t.Fatal(err)
			}
		}
		if b[1<<19] != 0 {
			t.Fatal("content of the mapping is not 0")
		}
		mapped := mappedPages(t, begin, 256)
		if one := mapped == 1; one != off {
			t.Errorf("mapped pages after one read = %d, want 1: %v", mapped, off)
		}
		if err := unix.Munmap(b); err != nil {
			t.Fatal(err)
		}
	}
}

// mappedPages counts the present pages of a range (proc_pid_pagemap(5), bit 63).
func mappedPages(t *testing.T, begin uint64, pages int) (n int) {
	t.Helper()
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	entries := make([]byte, 8*pages)
	if _, err := f.ReadAt(entries, int64(begin)/int64(os.Getpagesize())*8); err != nil {
		t.Fatal(err)
	}
	for i := range pages {
		n += int(entries[8*i+7] >> 7)
	}
	return n
}
