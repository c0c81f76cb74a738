// Command guest is /sbin/init of the test node. As process 1 it mounts the file systems, loads the
// modules, configures the network and then only reaps. Its child, the service, does the work: it
// starts the container runtime, and the harness on the host uses it to run commands, read files and
// connect to sockets (package guestapi).
//
// On a node with systemd, units run "guest setup" for modules and network and "guest serve-only"
// for the service, and systemd starts the runtime.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if os.Getpid() == 1 {
		if err := initialise(); err != nil {
			fmt.Println("guest: init:", err)
		}
		reap()
		return
	}
	var err error
	switch verb := strings.Join(os.Args[1:], " "); {
	case verb == "serve":
		err = serve(true)
	case verb == "serve-only":
		err = serve(false)
	case verb == "setup":
		err = setUp()
	case len(os.Args) == 3 && os.Args[1] == "sample":
		err = sample(os.Args[2])
	case len(os.Args) == 3 && os.Args[1] == "unmap":
		err = unmap(os.Args[2])
	case len(os.Args) == 3 && os.Args[1] == "dead-socket":
		err = deadSocket(os.Args[2])
	case len(os.Args) == 3 && os.Args[1] == "hang-mount":
		err = hangMount(os.Args[2])
	case len(os.Args) == 6 && os.Args[1] == "stop-at":
		err = stopAt(os.Args[2], os.Args[3], os.Args[4], os.Args[5])
	default:
		err = fmt.Errorf("unknown command %q", verb)
	}
	if err != nil {
		fmt.Println("guest:", err)
		os.Exit(1)
	}
}

// deadSocket leaves a unix socket without a listener, as a killed runtime does.
func deadSocket(path string) error {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false)
	return l.Close()
}

// mounts are in order. After an initramfs the kernel mounts nothing by itself.
var mounts = []struct {
	source, target, fstype, data string
	flags                        uintptr
}{
	{"proc", "/proc", "proc", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	{"sysfs", "/sys", "sysfs", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	{"devtmpfs", "/dev", "devtmpfs", "mode=0755", unix.MS_NOSUID},
	{"devpts", "/dev/pts", "devpts", "newinstance,ptmxmode=0666,mode=0620,gid=5", unix.MS_NOSUID | unix.MS_NOEXEC},
	{"tmpfs", "/dev/shm", "tmpfs", "mode=1777", unix.MS_NOSUID | unix.MS_NODEV},
	{"tmpfs", "/run", "tmpfs", "mode=0755", unix.MS_NOSUID | unix.MS_NODEV},
	{"tmpfs", "/tmp", "tmpfs", "mode=1777", unix.MS_NOSUID | unix.MS_NODEV},
	{"cgroup2", "/sys/fs/cgroup", "cgroup2", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
}

func initialise() error {
	for _, m := range mounts {
		if err := os.MkdirAll(m.target, 0o755); err != nil && !os.IsExist(err) {
			return err
		}
		if err := unix.Mount(m.source, m.target, m.fstype, m.flags, m.data); err != nil && err != unix.EBUSY {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make / shared: %w", err)
	}
	if err := setUp(); err != nil {
		return err
	}
	_ = unix.Sethostname([]byte("node"))
	if err := layOutCgroups("/sys/fs/cgroup"); err != nil {
		return err
	}
	service := exec.Command("/proc/self/exe", "serve")
	service.Stdout, service.Stderr = os.Stdout, os.Stderr
	service.Env = []string{"PATH=/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin", "HOME=/root"}
	return service.Start()
}

// setUp loads the modules, mounts the runtime's own disk and brings the network up.
func setUp() error {
	if err := loadModules("/lib/modules/load"); err != nil {
		return err
	}
	if err := mountImageDisk(); err != nil {
		return err
	}
	if err := awaitFile("/sys/class/net/eth0", 30*time.Second); err != nil {
		return err
	}
	for _, line := range []string{
		"ip link set lo up",
		"ip addr add 10.0.2.15/24 dev eth0",
		"ip link set eth0 up",
		"ip route add default via 10.0.2.2",
	} {
		if out, err := exec.Command("/bin/busybox", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("run %s: %w: %s", line, err, out)
		}
	}
	return nil
}

// imageDisk is the device of the second disk, on a node that has one.
const imageDisk = "/dev/vdb"

// mountImageDisk mounts the second disk, if the node has one, as the runtime's root. It must run
// before the runtime starts.
func mountImageDisk() error {
	if _, err := os.Stat(imageDisk); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	root := installedRuntime().Root
	if err := os.MkdirAll(root, 0o711); err != nil {
		return err
	}
	if err := unix.Mount(imageDisk, root, "ext4", 0, ""); err != nil {
		return fmt.Errorf("mount %s: %w", root, err)
	}
	return nil
}

// loadModules loads the kernel modules of the list in dependency order, one path per line.
func loadModules(list string) error {
	f, err := os.Open(list)
	if err != nil {
		return err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		module, err := os.Open(lines.Text())
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(module.Fd()), "", 0)
		module.Close()
		if err != nil && err != unix.EEXIST {
			return fmt.Errorf("load %s: %w", lines.Text(), err)
		}
	}
	return nil
}

// layOutCgroups makes the hierarchy of a kubelet with cgroupDriver cgroupfs, and moves init into a
// cgroup next to it.
func layOutCgroups(root string) error {
	for _, dir := range []string{"system", "kubepods", "kubepods/burstable", "kubepods/besteffort"} {
		if err := os.MkdirAll(root+"/"+dir, 0o755); err != nil {
			return err
		}
	}
	for _, f := range []struct{ path, value string }{
		{"system/cgroup.procs", "0"},
		{"cgroup.subtree_control", controllers},
		{"kubepods/cgroup.subtree_control", controllers},
		{"kubepods/burstable/cgroup.subtree_control", controllers},
		{"kubepods/besteffort/cgroup.subtree_control", controllers},
		{"kubepods/besteffort/cpu.weight", "1"},
	} {
		if err := os.WriteFile(root+"/"+f.path, []byte(f.value), 0o644); err != nil {
			return err
		}
	}
	return nil
}

const controllers = "+cpu +cpuset +io +memory +pids"

// reap reaps orphans for ever: process 1 must neither exit nor leave zombies.
func reap() {
	for {
		if _, err := unix.Wait4(-1, nil, 0, nil); err == unix.ECHILD {
			_ = unix.Pause()
		}
	}
}

// awaitFile waits for a file of the kernel: if systemd loads the modules, a driver may still be
// initializing.
func awaitFile(path string, limit time.Duration) error {
	for end := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return nil
		} else if time.Now().After(end) {
			return fmt.Errorf("wait for %s: %w", path, err)
		}
	}
}
