package disk

import (
	"context"
	"path/filepath"
	"testing"

	"jettison/cri"
	"jettison/stats/read/hosttest"
)

// Files that containerd keeps for a pod and mounts into its containers writable count for the
// disk, and for no limit: resolv.conf and hostname of each sandbox, and the volumes that an
// image declares, of live and exited containers. The path follows that of the store.
func TestFilesThatTheRuntimeKeepsCount(t *testing.T) {
	for _, c := range []struct{ store, root string }{
		{"/store", "/var/lib/containerd"},
		{"/data/c/io.containerd.snapshotter.v1.overlayfs", "/data/c"},
	} {
		root, index := hosttest.WithAPod(t)
		p := index["uid-1"]
		p.Sandboxes = append(p.Sandboxes, cri.PodSandbox{ID: "older"}, cri.PodSandbox{ID: "../containers"}, cri.PodSandbox{})
		p.Exited = []cri.Container{{ID: "c-gone"}}
		r := hosttest.OneStore(root)
		r.Stats = func(context.Context) ([]cri.ContainerStats, error) { return nil, nil }
		l, look := loopOn(t, root, index, r)
		l.walker.store = func() string { return c.store }
		before := look()
		dir := filepath.Join(root, c.root, "io.containerd.grpc.v1.cri")
		hosttest.Write(t, 4<<20, dir, "sandboxes/s/resolv.conf")
		hosttest.Write(t, 1<<20, dir, "sandboxes/older/hostname")
		hosttest.Write(t, 8<<20, dir, "containers/c-app/volumes/0a1b/data")
		hosttest.Write(t, 2<<20, dir, "containers/c-gone/volumes/0a1b/data")
		hosttest.Write(t, 16<<20, dir, "sandboxes/another/resolv.conf")
		hosttest.Write(t, 16<<20, dir, "containers/another/volumes/0a1b/data")
		now := look()
		const want = 15 << 20
		if got := now.ExitedLayers.V.UsedBytes - before.ExitedLayers.V.UsedBytes; got < want || got > want+1<<20 {
			t.Errorf("runtime's files below %s = %d KiB, want %d", c.root, got>>10, want>>10)
		}
		if now.UsedBytes != before.UsedBytes || !now.UsedBytes.OK {
			t.Errorf("%s: usage that limits count = %+v, before %+v", c.root, now.UsedBytes, before.UsedBytes)
		}
		p.Sandboxes = p.Sandboxes[:1]
		p.Containers, p.Exited = nil, nil
		if later := look(); later.ExitedLayers.V.UsedBytes >= now.ExitedLayers.V.UsedBytes {
			t.Errorf("%s: files of removed containers still count: %+v", c.root, later.ExitedLayers)
		}
	}
}
