package vm

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"jettison/e2e/build"
	"jettison/e2e/guestapi"
)

// The root disk is sparse. It has inodes for pods with many files.
const (
	diskSize   = "3G"
	diskInodes = "400000"
)

// image is a bootable node: the files that QEMU starts from.
type image struct {
	kernel, initrd, disk string
	second               string // a second disk; empty: none
}

const initramfsScript = `#!/bin/busybox sh
/bin/busybox mount -t devtmpfs devtmpfs /dev
exec </dev/console >/dev/console 2>&1
for m in $(/bin/busybox cat /modules/order); do /bin/busybox insmod /modules/$m || echo "initramfs: insmod $m failed"; done
/bin/busybox mount -t ext4 /dev/vda /newroot || exec /bin/busybox sh
exec /bin/busybox switch_root /newroot /sbin/init
`

// containerdConfig slows down the CRI plugin's stats collector, which alone can keep an emulated
// core busy.
func containerdConfig(systemd bool) string {
	return `version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "` + ImagePause + `"
[plugins.'io.containerd.cri.v1.runtime']
  stats_collect_period = "1h"
  disable_apparmor = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    use_internal_loopback = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      SystemdCgroup = ` + strconv.FormatBool(systemd) + `
      BinaryName = "/usr/local/bin/runc"
`
}

// podNetwork gives a pod without the host's network an eth0, with its peer on the node, and routes
// to the node's other pods. There is no route out of the node, so no address translation, which
// would need iptables.
const podNetwork = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp", "mtu": 1500,
  "ipam": {"type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": "10.88.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
`

// rootFiles are the small files of the root disk. The runtime creates no sandbox without hosts,
// resolv.conf and passwd.
var rootFiles = map[string]string{
	"etc/hosts":       "127.0.0.1 localhost node\n",
	"etc/resolv.conf": "nameserver 10.0.2.3\n",
	"etc/passwd":      "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n",
	"etc/group":       "root:x:0:\nnogroup:x:65534:\n",
}

// systemdFiles are written to a root disk with systemd, in addition to the distribution's files.
var systemdFiles = map[string]string{
	"etc/hosts":       "127.0.0.1 localhost node\n",
	"etc/resolv.conf": "nameserver 10.0.2.3\n",
	"etc/hostname":    "node\n",
	"etc/machine-id":  "00000000000000000000000000000001\n",
	"etc/systemd/system/guest-setup.service": `[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/bin/guest setup
StandardOutput=tty
TTYPath=/dev/ttyS0
`,
	"etc/systemd/system/guest.service": `[Unit]
After=guest-setup.service
Requires=guest-setup.service
[Service]
ExecStart=/usr/local/bin/guest serve-only
StandardOutput=tty
TTYPath=/dev/ttyS0
Environment=PATH=/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin HOME=/root
`,
}

// runtimeUnit is the systemd unit of a runtime.
func runtimeUnit(r guestapi.Runtime) string {
	return `[Unit]
After=guest-setup.service dbus.service
Requires=guest-setup.service
[Service]
Type=notify
Delegate=yes
KillMode=process
OOMScoreAdjust=-999
ExecStart=/bin/sh -c 'exec ` + r.Program() + ` >> ` + r.Log() + ` 2>&1'
Environment=PATH=/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin
`
}

// systemdLinks start the units above and keep a login prompt off the console.
var systemdLinks = map[string]string{
	"etc/systemd/system/multi-user.target.wants/guest.service": "../guest.service",
	"etc/systemd/system/default.target":                        "/lib/systemd/system/multi-user.target",
	"etc/systemd/system/serial-getty@ttyS0.service":            "/dev/null",
}

// build packs the root disk and the initramfs, or returns those packed earlier from identical
// parts.
func (p *parts) build(ctx context.Context, say Say) (*image, error) {
	tools := slices.Sorted(maps.Values(p.tools))
	inputs := append(slices.Concat(tools, slices.Sorted(maps.Values(p.images))), p.guest, p.workload, p.agent)
	words := []string{p.kernelVersion, diskSize, diskInodes, initramfsScript, fmt.Sprint(rootFiles, systemdFiles, systemdLinks, ownLinks, p.runtimeFiles()), runtimeUnit(p.engine), podNetwork, busyboxPrograms, p.systemd, fmt.Sprint(diskModules, nodeModules)}
	key, err := build.Digest(words, inputs)
	if err != nil {
		return nil, err
	}
	build.Prune("disk/*", 48*time.Hour)
	dir, err := build.Cached("disk/"+key, say, func(dir string) error {
		tree, err := readModuleTree(p.modules)
		if err != nil {
			return err
		}
		if err := p.initramfs(ctx, tree, dir); err != nil {
			return fmt.Errorf("initramfs: %w", err)
		}
		return p.rootDisk(ctx, tree, dir)
	})
	if err != nil {
		return nil, err
	}
	return &image{kernel: p.vmlinuz, initrd: filepath.Join(dir, "initrd"), disk: filepath.Join(dir, "root.img")}, nil
}

// emptyDisk makes a disk with an empty ext4, or returns an existing one.
func emptyDisk(ctx context.Context, mib int, say Say) (string, error) {
	dir, err := build.Cached(fmt.Sprintf("empty-ext4-%dM", mib), say, func(dir string) error {
		return mkext4(ctx, dir, filepath.Join(dir, "disk.img"), strconv.Itoa(mib)+"M")
	})
	return filepath.Join(dir, "disk.img"), err
}

// mkext4 makes a sparse file of a size with an ext4; more are further arguments of mke2fs.
func mkext4(ctx context.Context, dir, file, size string, more ...string) error {
	mke2fs, err := sbin("mke2fs")
	if err != nil {
		return fmt.Errorf("%w: install the package e2fsprogs", err)
	}
	_, err = build.Run(ctx, dir, nil, mke2fs, append(append([]string{"-q", "-t", "ext4"}, more...), file, size)...)
	return err
}

func (p *parts) initramfs(ctx context.Context, tree *moduleTree, dir string) error {
	root := filepath.Join(dir, "initramfs")
	defer os.RemoveAll(root)
	for _, d := range []string{"bin", "dev", "newroot"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return err
		}
	}
	order, err := tree.unpack(diskModules, filepath.Join(root, "modules"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, "modules", "order"), []byte(strings.Join(order, "\n")), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, "init"), []byte(initramfsScript), 0o755); err != nil {
		return err
	}
	if err := copyFile(p.tools["busybox"], filepath.Join(root, "bin/busybox")); err != nil {
		return err
	}
	_, err = build.Run(ctx, root, nil, "sh", "-c", "find . | cpio --quiet -o -H newc -R 0:0 > ../initrd")
	return err
}

func (p *parts) rootDisk(ctx context.Context, tree *moduleTree, dir string) error {
	root := filepath.Join(dir, "root")
	defer os.RemoveAll(root)
	files, init := rootFiles, "sbin/init"
	if p.systemd != "" {
		files, init = systemdFiles, "usr/local/bin/guest"
		if err := os.MkdirAll(root, 0o755); err != nil {
			return err
		}
		if _, err := build.Run(ctx, dir, nil, "tar", "-xf", p.systemd, "-C", root, "--numeric-owner"); err != nil {
			return err
		}
	}
	for _, d := range []string{"proc", "sys", "dev", "run", "tmp", "root", "bin", "sbin", "var/log", "var/tmp", "usr/local/bin", "lib/modules", "images"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return err
		}
	}
	common := map[string]string{"etc/cni/net.d/10-pods.conflist": podNetwork}
	if p.systemd != "" {
		common["etc/systemd/system/"+p.engine.Name+".service"] = runtimeUnit(p.engine)
	}
	if err := writeFiles(root, files, p.runtimeFiles(), common); err != nil {
		return err
	}
	order, err := tree.unpack(nodeModules, filepath.Join(root, "lib/modules"))
	if err != nil {
		return err
	}
	for i, m := range order {
		order[i] = "/lib/modules/" + m
	}
	if err := os.WriteFile(filepath.Join(root, "lib/modules/load"), []byte(strings.Join(order, "\n")), 0o644); err != nil {
		return err
	}
	if err := p.programs(root, init); err != nil {
		return err
	}
	links := maps.Clone(systemdLinks)
	links["etc/systemd/system/multi-user.target.wants/"+p.engine.Name+".service"] = "../" + p.engine.Name + ".service"
	if p.systemd == "" {
		links = maps.Clone(ownLinks)
		for name := range strings.FieldsSeq(busyboxPrograms) {
			links["bin/"+name] = "busybox"
		}
	}
	if err := writeLinks(root, links); err != nil {
		return err
	}
	return mkext4(ctx, dir, filepath.Join(dir, "root.img"), diskSize, "-N", diskInodes, "-E", "root_owner=0:0", "-d", root)
}

// ownLinks are links that every distribution has. containerd's NRI socket is below /var/run.
var ownLinks = map[string]string{"var/run": "/run"}

// busyboxPrograms are the names under which the guest's shell lines and programs call busybox.
const busyboxPrograms = "sh cat chmod ls mkdir rmdir rm kill dmesg ps mount umount dd mv su sed wc grep nsenter"

// programs puts the node's programs and its image tars on the root disk. init is the path of the
// guest's own init.
func (p *parts) programs(root, init string) error {
	copies := map[string]string{
		init:                     p.guest, // the programs of the images, also usable without a runtime:
		"usr/local/bin/workload": p.workload, "usr/local/bin/jettison": p.agent,
	}
	for name, from := range p.tools {
		switch {
		case name == "busybox":
			copies["bin/"+name] = from
		case slices.Contains(cniPlugins, name):
			copies["opt/cni/bin/"+name] = from
		default:
			copies["usr/local/bin/"+name] = from
		}
	}
	for _, from := range p.images {
		copies["images/"+filepath.Base(from)] = from
	}
	for to, from := range copies {
		to = filepath.Join(root, to)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := copyFile(from, to); err != nil {
			return err
		}
	}
	return nil
}

// writeLinks makes symbolic links below a folder, replacing existing files.
func writeLinks(root string, links map[string]string) error {
	for name, target := range links {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.RemoveAll(path); err != nil {
			return err
		}
		if err := os.Symlink(target, path); err != nil {
			return err
		}
	}
	return nil
}

// writeFiles writes texts below a folder. It replaces a symbolic link of the same name (a
// distribution's resolv.conf).
func writeFiles(root string, sets ...map[string]string) error {
	for _, files := range sets {
		for name, text := range files {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			if err := os.RemoveAll(path); err != nil {
				return err
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// sbin finds an administrator's program, which an ordinary user's PATH often lacks.
func sbin(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return exec.LookPath("/usr/sbin/" + name)
}

// copyFile makes an executable copy.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
