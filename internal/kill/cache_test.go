package kill

import (
	"context"
	"os"
	"strings"
	"testing"
)

// Where nothing comes, or nothing is there, the drop ends; what cannot be asked for is no error.
func TestDropCacheEnds(t *testing.T) {
	const full = "anon 1\nfile 104857600\nshmem 4096\ninactive_file 4096\n"
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		what, stat, want string
		missing          bool
		ctx              context.Context
	}{
		{what: "none of it comes", stat: full, want: "8388608 swappiness=0", ctx: t.Context()},
		{what: "a little", stat: "anon 1\nfile 2097152\nshmem 4096\ninactive_file 0\n", want: "2093056 swappiness=0", ctx: t.Context()},
		{what: "shared memory is none", stat: "anon 1\nfile 104857600\nshmem 104857600\ninactive_file 0\n", ctx: t.Context()},
		{what: "the agent is told to stop", stat: full, ctx: gone},
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
		took := v.DropCache(c.ctx)
		text, _ := os.ReadFile(f.file("pod", "memory.reclaim"))
		if took != 0 || !strings.HasPrefix(string(text), c.want) || c.want == "" && len(text) > 0 {
			t.Errorf("%s: took %d, asked for %q, want %q", c.what, took, text, c.want)
		}
		v.Close()
	}
}
