package mounts

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"jettison/stats/read/hosttest"
)

func TestParseUpperDirs(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"overlay", hosttest.Overlay, "/store/snapshots/7/fs x"},
		{"optional fields", "1 0 0:50 / /run/c-app/rootfs rw shared:1 master:2 - overlay overlay rw,upperdir=/u,workdir=/w\n", "/u"},
		{"special characters", `1 0 0:50 / /run/c-app/rootfs rw - overlay overlay rw,upperdir=/a\040b\054c\134040\043` + "\n", `/a b,c\040#`},
		{"not overlay", "1 0 253:3 / /run/c-app/rootfs rw - ext4 /dev/dm-3 rw,upperdir=/u\n", ""},
		{"read-only overlay", "1 0 0:50 / /run/c-app/rootfs ro - overlay overlay ro,lowerdir=/a:/b\n", ""},
		{"relative", "1 0 0:50 / /run/c-app/rootfs ro - overlay overlay rw,upperdir=l/diff\n", ""},
		{"at the root", "1 0 0:50 / / rw - overlay overlay rw,upperdir=/u\n", ""},
		{"of another container", "1 0 0:50 / /run/x-c-app/rootfs rw - overlay overlay rw,upperdir=/u\n", ""},
		{"inside a container's root", "1 0 0:50 / /run/c-app/rootfs/x rw - overlay overlay rw,upperdir=/u\n", ""},
		{"seen twice", hosttest.Overlay + hosttest.Overlay, "/store/snapshots/7/fs x"},
		{"disputed", hosttest.Overlay + "1 0 0:50 / /run/c-app/rootfs rw - overlay overlay rw,upperdir=/u\n" + hosttest.Overlay, ""},
		{"cut off", "1 0 0:50 / /run/c-app/rootfs rw -", ""},
		{"empty", "", ""},
	} {
		got, err := parseUpperDirs(strings.NewReader(c.text))
		if got["c-app"] != c.want || (err != nil) != (c.name == "cut off") {
			t.Errorf("upper directory with %s = %q, want %q, error %v", c.name, got["c-app"], c.want, err)
		}
	}
}

// The root of CRI-O's containers, by mount point. A layer that is mounted from its parent directory has
// a relative upper directory.
func TestUpperDirsByMountPoint(t *testing.T) {
	const at = "/var/lib/containers/storage/overlay/l1/merged"
	line := func(options string) string {
		return "1 0 0:50 / " + at + " rw,relatime - overlay overlay " + options + "\n"
	}
	for _, c := range []struct{ name, text, want string }{
		{"CRI-O", line("rw,lowerdir=l/A:l/B,upperdir=/var/lib/containers/storage/overlay/l1/diff,workdir=/w,volatile"), "/var/lib/containers/storage/overlay/l1/diff"},
		{"SELinux", line(`rw,context="system_u:object_r:container_file_t:s0:c1,c2",lowerdir=/a,upperdir=/b/diff,workdir=/w`), "/b/diff"},
		{"relative", line("rw,lowerdir=l/A,upperdir=l1/diff,workdir=l1/work"), "/var/lib/containers/storage/overlay/l1/diff"},
		{"relative to another layer", line("rw,lowerdir=l/A,upperdir=l2/diff,workdir=l2/work"), ""},
		{"read-only", line("ro,lowerdir=/a:/b"), ""},
		{"mounted over", line("rw,upperdir=/a/diff") + line("rw,upperdir=/b/diff"), ""},
		{"fuse-overlayfs", "1 0 0:50 / " + at + " rw - fuse.fuse-overlayfs fuse-overlayfs rw,upperdir=/a\n", ""},
	} {
		got, err := parseUpperDirs(strings.NewReader(c.text))
		if got[at] != c.want || err != nil {
			t.Errorf("upper directory with %s = %q, error %v, want %q", c.name, got[at], err, c.want)
		}
	}
}

// unmangle reverts the kernel's escaping of a path (fs/proc_namespace.c mangle), and of any
// other byte.
func unmangle(path string) string {
	return regexp.MustCompile(`\\[0-7]{3}`).ReplaceAllStringFunc(path, func(octal string) string {
		n, _ := strconv.ParseUint(octal[1:], 8, 16)
		return string([]byte{byte(n)})
	})
}

func FuzzParseUpperDirs(f *testing.F) {
	f.Add([]byte(hosttest.Overlay))
	f.Add([]byte(hosttest.Overlay + "1 0 0:50 / /run/c-app/rootfs rw - overlay overlay rw,upperdir=/u\n"))
	f.Add([]byte("1 0 253:3 / /x/rootfs rw - ext4 /dev/dm-3 rw\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		found, err := parseUpperDirs(bytes.NewReader(b))
		if err != nil && found != nil {
			t.Error("parser returned mounts with an error")
		}
		for key, dir := range found {
			if key == "" || !strings.HasPrefix(dir, "/") {
				t.Errorf("%q has a relative upper directory %q", key, dir)
			}
			listed := false
			for line := range strings.Lines(string(b)) {
				fields := strings.Split(line, " ")
				if len(fields) <= 7 || !strings.Contains(line, "overlay") || !strings.Contains(line, "upperdir=") {
					continue
				}
				at := unmangle(fields[4])
				listed = listed || at == key || !strings.Contains(key, "/") && strings.HasSuffix(at, "/"+key+"/rootfs")
			}
			if !listed {
				t.Errorf("%q of %q comes from no overlay", dir, key)
			}
		}
	})
}

func TestOverlaysByTheirDevice(t *testing.T) {
	got, err := parseOverlays(strings.NewReader("500 400 8:1 / / rw - ext4 /dev/vda rw\n" + hosttest.Overlay +
		"601 500 0:51 / /x rw - overlay overlay rw,lowerdir=/a\n602 500 0:52 / /x rw - overlay overlay rw,upperdir=rel,workdir=/w\n"))
	if err != nil || len(got) != 1 || got[unix.Mkdev(0, 50)] != "/store/snapshots/7/fs x" {
		t.Errorf("overlays by device = %v, error %v", got, err)
	}
	if got, err := parseOverlays(strings.NewReader("1 0 0:50 / /x rw -")); err == nil || got != nil {
		t.Errorf("overlays of a truncated mountinfo = %v, error %v", got, err)
	}
}

// A long line in a mountinfo, which a tenant that may write to a mounted directory can create,
// hides no other line and not itself.
func TestALongLineOfMountsHidesNoOther(t *testing.T) {
	long := "700 500 0:60 /" + strings.Repeat("d", 100<<10) + "//deleted /m rw - ext4 /dev/vda rw\n"
	if got, err := parseOverlays(strings.NewReader(long + hosttest.Overlay + long)); err != nil || len(got) != 1 {
		t.Errorf("overlays besides a long line = %v, error %v", got, err)
	}
	if got, err := parseUpperDirs(strings.NewReader(long + hosttest.Overlay)); err != nil || got["c-app"] == "" {
		t.Errorf("upper directories besides a long line = %v, error %v", got, err)
	}
	longer := strings.Replace(long, "//", strings.Repeat("d", 2<<20)+"//", 1)
	for text, want := range map[string]string{
		long + hosttest.Overlay + "x y\n":                            "700 true /m, 600 false , ",
		hosttest.Overlay + longer + hosttest.Overlay + "1 2 3:4 /\n": "600 false , 700 true /m, 600 false , ",
	} {
		got := ""
		whole := eachMount(strings.NewReader(text), func(m *Mount) { got += fmt.Sprintf("%d %v %s, ", m.ID, m.Unnamed, m.Point) })
		if got != want || !whole {
			t.Errorf("mounts without a name = %q, whole %v; want %q", got, whole, want)
		}
	}
	if eachMount(strings.NewReader(strings.Repeat(hosttest.Overlay, maxMounts/len(hosttest.Overlay)+1)), func(*Mount) {}) {
		t.Error("truncated mountinfo is reported as whole")
	}
}
