package openfiles

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// below creates the given number of nested directories with long names in the holder's
// directory, and a file of 64 MiB there without a name. The path is longer than any call
// accepts, so each directory is opened from its parent.
func (h *holder) below(levels int) (fd int) {
	h.t.Helper()
	at, err := unix.Open(h.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for i := 0; i < levels && err == nil; i++ {
		name, next := strings.Repeat("d", 250), 0
		_ = unix.Mkdirat(at, name, 0o755) // it may exist
		next, err = unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		unix.Close(at)
		at = next
	}
	if err == nil {
		fd, err = unix.Openat(at, "x", unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
	}
	if err == nil {
		err = errors.Join(unix.Fallocate(fd, 0, 0, 64<<20), unix.Unlinkat(at, "x", 0))
		unix.Close(at)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return fd
}

// hides reports an error if a look does not find 64 MiB more than before.
func (h *holder) hides(what string, before Kept) {
	h.t.Helper()
	after := h.of("a", Kept{})
	if grew := after.byDevice[h.disk].Bytes - before.byDevice[h.disk].Bytes; grew < 64<<20 || after.cut {
		h.t.Errorf("%s: %d of 64 MiB are counted, cut %v", what, grew>>20, after.cut)
	}
}

// A file with a path longer than readlink(2) returns counts like any other: by the link count.
func TestALongPathHidesNoFile(t *testing.T) {
	for _, levels := range []int{2, 20} {
		h := newHolder(t, "a")
		before := h.of("a", Kept{})
		fd := h.below(levels)
		h.hides(fmt.Sprintf("open, %d levels down", levels), before)
		unix.Close(fd)
	}
}

// A line of maps longer than one read is still parsed as one line.
func TestALongPathHidesNoMappedFile(t *testing.T) {
	h := newHolder(t, "a")
	before := h.of("a", Kept{})
	fd := h.below(140)
	area, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	unix.Close(fd)
	if err != nil {
		t.Fatal(err)
	}
	h.hides("mapped only", before)
	if err := unix.Munmap(area); err != nil {
		t.Error(err)
	}
}

// unmapsItself is a program that unlinks its file, and continues in a page of memory without
// it.
const unmapsItself = `

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
__attribute__((noinline,aligned(64))) static void rest(unsigned long from, unsigned long length) {
	long r;
	__asm__ volatile("syscall" : "=a"(r) : "a"(11), "D"(from), "S"(length) : "rcx", "r11", "memory"); /* munmap */
	__asm__ volatile("syscall" : "=a"(r) : "a"(3), "D"(1L) : "rcx", "r11", "memory"); /* close: this far */
	for (;;) __asm__ volatile("syscall" : "=a"(r) : "a"(34) : "rcx", "r11", "memory"); /* pause */
}
int main(void) {
	char line[512], self[256];
	unsigned long lo = -1, hi = 0, a, b;
	int n = readlink("/proc/self/exe", self, 255);
	self[n] = 0;
	FILE *m = fopen("/proc/self/maps", "r");
	while (fgets(line, 512, m))
		if (strstr(line, self)) { sscanf(line, "%lx-%lx", &a, &b); if (a < lo) lo = a; if (b > hi) hi = b; }
	unlink(self);
	char *code = mmap(0, 4096, 7, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0);
	memcpy(code, rest, 512);
	((void(*)(unsigned long, unsigned long))code)(lo, hi - lo);
}`

// A program keeps its file while it runs, whether it still maps it or not.
func TestRunningProgramKeepsItsFile(t *testing.T) {
	h := newHolder(t, "a")
	source, program := filepath.Join(t.TempDir(), "a.c"), filepath.Join(h.dir, "program")
	if err := os.WriteFile(source, []byte(unmapsItself), 0o644); err != nil {
		t.Fatal(err)
	}
	cc := exec.Command("gcc", "-w", "-O1", "-static", "-no-pie", "-fcf-protection=none", "-fno-stack-protector", "-D_GNU_SOURCE", "-o", program, source)
	if out, err := cc.CombinedOutput(); err != nil {
		t.Skipf("a C compiler for amd64 is needed: %v: %s", err, out)
	}
	if f, err := os.OpenFile(program, os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	} else if end, err := f.Seek(0, 2); err != nil || unix.Fallocate(int(f.Fd()), 0, end, 64<<20) != nil || f.Close() != nil {
		t.Fatal("no room for the program")
	}
	cmd := exec.Command(program)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // the error reports the kill
	}()
	if n, err := out.Read(make([]byte, 1)); n != 0 || err == nil { // the end of its output, once it is unmapped
		t.Fatal("the program printed unexpected output")
	}
	procs := filepath.Join(h.tree, "kubepods/burstable/poda/c/cgroup.procs")
	if err := os.WriteFile(procs, []byte(fmt.Sprintln(cmd.Process.Pid)), 0o644); err != nil {
		t.Fatal(err)
	}
	h.hides("as the program of a process", Kept{})
}

// A removed directory keeps its blocks while a process is in it.
func TestAWorkingDirectoryWithoutANameCounts(t *testing.T) {
	h := newHolder(t, "a")
	gone := filepath.Join(h.dir, "gone")
	if err := os.Mkdir(gone, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "60")
	cmd.Dir = gone
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // the error reports the kill
	}()
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	procs := filepath.Join(h.tree, "kubepods/burstable/poda/c/cgroup.procs")
	if err := os.WriteFile(procs, []byte(fmt.Sprintln(cmd.Process.Pid)), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := h.of("a", Kept{}); got.byDevice[h.disk].Inodes != 1 {
		t.Errorf("usage with a removed working directory = %+v", got)
	}
}

// keptMounted starts a process in its own mount namespace that mounts a file of 64 MiB, and
// unlinks the file.
func (h *holder) keptMounted(target string) (pid int) {
	h.t.Helper()
	h.file("x", 64<<20).Close()
	if err := errors.Join(os.MkdirAll(filepath.Dir(target), 0o755), os.WriteFile(target, nil, 0o644)); err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `mount --make-rprivate / && mount --bind "$0" "$1" && rm "$0" && exec sleep 60 >&-`, filepath.Join(h.dir, "x"), target)
	cmd.SysProcAttr = &unix.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		h.t.Skip("cannot mount here: ", err)
	}
	h.t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil {
			h.t.Error(err)
		}
		_ = cmd.Wait() // the error reports the kill
	})
	if _, err := out.Read(make([]byte, 1)); err == nil { // the end of its output, once all is done
		h.t.Fatal("sh printed unexpected output")
	}
	if _, err := os.Stat(filepath.Join(h.dir, "x")); err == nil {
		h.t.Skip("cannot mount here")
	}
	return cmd.Process.Pid
}

// A volumeMount with a file as its subPath is a mount of that file, which keeps the file after
// its unlink in the volume, even if no process has it open.
func TestAMountHidesNoFile(t *testing.T) {
	for _, target := range []string{"with a space", strings.Repeat(strings.Repeat("t", 250)+"/", 10) + "far"} {
		h := newHolder(t, "a")
		pid := h.keptMounted(filepath.Join(t.TempDir(), target))
		procs := filepath.Join(h.tree, "kubepods/burstable/poda/c/cgroup.procs")
		if err := os.WriteFile(procs, []byte(fmt.Sprintln(pid)), 0o644); err != nil {
			t.Fatal(err)
		}
		h.hides("by a mount", Kept{})
	}
}

// The kubelet's mounts of volumes' files are on the host, whether a container lives or not:
// they belong to the pod with the volume, and not to the pod that sees the host's mounts.
func TestAMountOfTheKubeletsHidesNoFile(t *testing.T) {
	h := newHolder(t, "a", "b")
	pid := h.keptMounted(filepath.Join(t.TempDir(), "pods/a/volume-subpaths/volume/app/0"))
	h.proc = t.TempDir()
	for name, to := range map[string]int{"1": pid, fmt.Sprint(pid): pid} {
		if err := os.Symlink(fmt.Sprint("/proc/", to), filepath.Join(h.proc, name)); err != nil {
			t.Fatal(err)
		}
	}
	for uid, pids := range map[string]string{"a": "", "b": fmt.Sprintln(pid)} {
		procs := filepath.Join(h.tree, "kubepods/burstable/pod"+uid, "c/cgroup.procs")
		if err := os.WriteFile(procs, []byte(pids), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if b := h.of("b", Kept{}); b.cut || b.byDevice[h.disk].Bytes != 0 {
		t.Errorf("usage of a pod that sees the host's mounts = %+v", b)
	}
	h.hides("by the kubelet's mount", Kept{})
}
