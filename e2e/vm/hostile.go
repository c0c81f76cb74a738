package vm

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// StopRuntime kills the runtime with SIGKILL and waits until it has ended. Its shims or monitors and
// their containers keep running.
func (n *Node) StopRuntime(ctx context.Context) error {
	if _, err := n.Shell(ctx, "kill -9 "+n.RuntimePID()); err != nil {
		return err
	}
	return n.Eventually(ctx, callDeadline, "the runtime is gone", func(ctx context.Context) error {
		res, err := n.Exec(ctx, "/bin/sh", "-c", "kill -0 "+n.RuntimePID())
		if err == nil && res.Code == 0 {
			err = errors.New("the runtime still runs")
		}
		return err
	})
}

// StartRuntime starts the runtime again, as a service manager would, and waits until it answers.
func (n *Node) StartRuntime(ctx context.Context) error {
	if err := n.call(ctx, "POST", "/runtime", nil, nil); err != nil {
		return err
	}
	return n.WaitRuntime(ctx)
}

// RuntimePID returns the shell expression for the runtime's process id.
func (n *Node) RuntimePID() string {
	if n.systemd {
		return "$(systemctl show --property MainPID --value " + n.Runtime.Name + ")"
	}
	return "$(cat " + n.Runtime.PIDFile() + ")"
}

// HangRuntime stops the runtime's process: its socket accepts connections and never answers.
func (n *Node) HangRuntime(ctx context.Context) error {
	_, err := n.Shell(ctx, "kill -STOP "+n.RuntimePID())
	return err
}

// ResumeRuntime continues a runtime that HangRuntime stopped, and waits until it answers.
func (n *Node) ResumeRuntime(ctx context.Context) error {
	if _, err := n.Shell(ctx, "kill -CONT "+n.RuntimePID()); err != nil {
		return err
	}
	return n.WaitRuntime(ctx)
}

// guestProgram returns the guest's path of the program of package guest.
func (n *Node) guestProgram() string {
	if n.systemd {
		return "/usr/local/bin/guest"
	}
	return "/sbin/init"
}

// HangMount mounts a file system that never answers on a folder of the guest: statfs and every
// other call on it block. release kills the file system's server and unmounts it.
func (n *Node) HangMount(ctx context.Context, dir string) (release func(context.Context) error, err error) {
	output := "/var/log/hang-mount.log"
	pid, err := n.Start(ctx, output, n.guestProgram(), "hang-mount", dir)
	if err != nil {
		return nil, err
	}
	err = n.Eventually(ctx, callDeadline, dir+" is mounted", func(ctx context.Context) error {
		mounts, err := n.ReadFile(ctx, "/proc/mounts", 0)
		if err == nil && !bytes.Contains(mounts, []byte("hang "+dir+" fuse")) {
			text, _ := n.ReadFile(ctx, output, 0)
			err = fmt.Errorf("%s is not in /proc/mounts: %s", dir, text)
		}
		return err
	})
	return func(ctx context.Context) error {
		_, err := n.Shell(ctx, fmt.Sprintf("kill -9 %d && umount -l %s", pid, dir))
		return err
	}, err
}

// quotaSize is the size of the file system of MountProjectQuota: about the smallest that mke2fs
// gives a useful journal.
const quotaSize = "64M"

// MountProjectQuota makes an ext4 file system of 64 MiB with project quotas, limits included, and
// mounts it on a folder of the guest. Its device is a loop device.
func (n *Node) MountProjectQuota(ctx context.Context, dir string) error {
	image, err := quotaImage(ctx)
	if err != nil {
		return fmt.Errorf("make a file system with project quotas: %w", err)
	}
	file := "/var/lib/quota-" + strings.ReplaceAll(strings.Trim(dir, "/"), "/", "-") + ".img"
	if err := n.WriteFile(ctx, file+".gz", image); err != nil {
		return err
	}
	_, err = n.Shell(ctx, "busybox gunzip -f "+file+".gz && mkdir -p "+dir+" && mount -t ext4 -o loop,prjquota "+file+" "+dir)
	return err
}

// quotaImage makes the image, compressed: nearly all of it is zeros.
func quotaImage(ctx context.Context) ([]byte, error) {
	dir, err := os.MkdirTemp("", "quota-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "image")
	if err := mkext4(ctx, dir, file, quotaSize, "-O", "quota,project", "-E", "quotatype=prjquota"); err != nil {
		return nil, err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
