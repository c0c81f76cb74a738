package kill

import (
	"context"
	"os"
	"strings"
	"testing"
)

// DropCache ends when the kernel frees nothing; a kernel without memory.reclaim is no error.
func TestDropCacheEnds(t *testing.T) {
	const full = "anon 1\nfile 104857600\nshmem 4096\ninactive_file 4096\n"
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		what, stat, want string
		missing          bool
		ctx              context.Context
	}{
		{what: "nothing is freed", stat: full, want: "1048576 swappiness=0", ctx: t.Context()},
		{what: "little cache", stat: "anon 1\nfile 2097152\nshmem 4096\ninactive_file 0\n", want: "1048576 swappiness=0", ctx: t.Context()},
		{what: "shared memory only", stat: "anon 1\nfile 104857600\nshmem 104857600\ninactive_file 0\n", ctx: t.Context()},
		{what: "context canceled", stat: full, ctx: gone},
		{what: "an old kernel", stat: full, missing: true, ctx: t.Context()},
		{what: "malformed", stat: "file x\n", ctx: t.Context()},
	} {
		f := newTree(t)
		files := map[string]string{"cgroup.events": "populated 0\n", "cgroup.kill": "", "memory.stat": c.stat, "memory.reclaim": ""}
		if c.missing {
			delete(files, "memory.reclaim")
		}
		v, err := Pin(f.fs, f.pod("pod", files))
		if err != nil {
			t.Fatal(c.what, err)
		}
		took := v.DropCache(c.ctx, func() bool { return false })
		text, _ := os.ReadFile(f.file("pod", "memory.reclaim"))
		if took != 0 || !strings.HasPrefix(string(text), c.want) || c.want == "" && len(text) > 0 {
			t.Errorf("%s: freed %d bytes, request %q, want 0 bytes, request %q", c.what, took, text, c.want)
		}
		v.Close()
	}
}

// DropCache returns although the write blocks in the kernel on a disk or a file server.
func TestDropCacheWaitsForNoWrite(t *testing.T) {
	f := newTree(t)
	p := f.pod("pod", map[string]string{"cgroup.events": "populated 0\n", "memory.stat": "anon 1\nfile 104857600\nshmem 4096\ninactive_file 4096\n"})
	unblock := f.full("pod", "memory.reclaim")
	v, err := Pin(f.fs, p)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	ctx, cancel := context.WithCancel(t.Context())
	asks, done := make(chan struct{}, 1), make(chan struct{})
	go func() { v.DropCache(ctx, func() bool { asks <- struct{}{}; return false }); close(done) }()
	<-asks // it writes next
	cancel()
	within(t, "DropCache returns", done)
	unblock()
	awaitUsers(t, v, 1)
}

// DropCache returns although opening memory.reclaim waits for the lock of the victim's directory.
func TestDropCacheWaitsForNoOpen(t *testing.T) {
	f := newTree(t)
	v, err := Pin(f.fs, f.pod("pod", map[string]string{"memory.stat": "anon 1\nfile 104857600\nshmem 4096\ninactive_file 4096\n"}))
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	f.block("pod", "memory.reclaim", "")
	done := make(chan struct{})
	go func() { v.DropCache(t.Context(), func() bool { return false }); close(done) }()
	within(t, "DropCache returns", done)
}

// DropCache sends no request once stop returns true.
func TestDropCacheStops(t *testing.T) {
	f := newTree(t)
	v, err := Pin(f.fs, f.pod("pod", map[string]string{
		"cgroup.events": "populated 0\n", "memory.reclaim": "", "memory.stat": "anon 1\nfile 104857600\nshmem 4096\ninactive_file 4096\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	v.DropCache(t.Context(), func() bool { return true })
	if text, err := os.ReadFile(f.file("pod", "memory.reclaim")); err != nil || len(text) > 0 {
		t.Errorf("memory.reclaim after stop = %q, %v, want empty", text, err)
	}
}
