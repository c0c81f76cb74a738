// Package network reads the counters of pods' network interfaces, over netlink.
package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"jettison/stats"
	"jettison/stats/read/podindex"
	"jettison/stats/read/procfs"
)

// Limit is the maximum age of network counters, Every the interval of their readings.
const (
	Every = 10 * time.Second
	Limit = 45 * time.Second
)

// Networks reads the counters of every pod's network namespace. It keeps a socket in each
// namespace, so that a reading need not change namespaces. A socket keeps its namespace alive, so
// it is closed when the pod is gone.
type Networks struct {
	proc    string
	handles map[uint64]*netlink.Handle // by inode of the namespace
	mu      sync.Mutex
	index   podindex.Index
}

// New returns a Networks that finds namespaces through the processes of a proc file system. Call
// Close.
func New(proc string) *Networks {
	return &Networks{proc: proc, handles: map[uint64]*netlink.Handle{}}
}

// SetPods sets the pods to read. Any goroutine may call it.
func (n *Networks) SetPods(index podindex.Index) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.index = index
}

// Reading is one reading of all pods, by UID. Err joins the errors of pods that could not be
// read.
type Reading struct {
	Pods map[string]stats.NetworkStats
	Err  error
}

// Read reads all pods. The result lacks pods that vanish meanwhile, and pods that share a
// namespace, because their traffic cannot be separated.
func (n *Networks) Read(ctx context.Context) (Reading, error) {
	n.mu.Lock()
	index := n.index
	n.mu.Unlock()
	out := Reading{Pods: map[string]stats.NetworkStats{}}
	host, err := namespace(n.proc + "/1/ns/net")
	if err != nil {
		return out, fmt.Errorf("find the host's network namespace: %w", err)
	}
	type owner struct{ uid, path string }
	owners := map[uint64][]owner{}
	for uid, p := range index {
		id, pid := p.Process()
		if pid == 0 || ctx.Err() != nil {
			continue
		}
		// the result lacks a pod with a process that cannot be verified
		if own, _ := procfs.InCgroup(n.proc, id, pid); !own {
			continue
		}
		name := fmt.Sprintf("%s/%d/ns/net", n.proc, pid)
		inode, err := namespace(name)
		if err == nil && inode != host { // otherwise the pod has ended, or is on the host's network
			owners[inode] = append(owners[inode], owner{uid, name})
		}
	}
	var errs []error
	for inode, of := range owners {
		if len(of) > 1 {
			continue
		}
		stats, err := n.links(inode, of[0].path)
		if err != nil {
			errs = append(errs, fmt.Errorf("network of pod %s: %w", of[0].uid, err))
			continue
		}
		out.Pods[of[0].uid] = stats
	}
	for inode, h := range n.handles {
		if len(owners[inode]) != 1 {
			h.Close()
			delete(n.handles, inode)
		}
	}
	out.Err = errors.Join(errs...)
	return out, nil
}

// Close closes the sockets.
func (n *Networks) Close() {
	for _, h := range n.handles {
		h.Close()
	}
	n.handles = map[uint64]*netlink.Handle{}
}

// namespace returns the inode that identifies a namespace (namespaces(7)).
func namespace(name string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return 0, fmt.Errorf("stat %s: %w", name, err)
	}
	return st.Ino, nil
}

// socketTimeout bounds the wait for a kernel that is busy changing its network (rtnl_lock).
const socketTimeout = time.Second

func (n *Networks) links(inode uint64, name string) (stats.NetworkStats, error) {
	h := n.handles[inode]
	if h == nil {
		ns, err := netns.GetFromPath(name)
		if err != nil {
			return stats.NetworkStats{}, err
		}
		defer ns.Close()
		var st unix.Stat_t
		// the process ID was reused
		if err := unix.Fstat(int(ns), &st); err != nil || st.Ino != inode {
			return stats.NetworkStats{}, os.ErrNotExist
		}
		if h, err = netlink.NewHandleAt(ns, unix.NETLINK_ROUTE); err != nil {
			return stats.NetworkStats{}, err
		}
		if err := h.SetSocketTimeout(socketTimeout); err != nil {
			h.Close()
			return stats.NetworkStats{}, err
		}
		n.handles[inode] = h
	}
	list, err := h.LinkList()
	if err != nil {
		h.Close()
		delete(n.handles, inode)
		return stats.NetworkStats{}, err
	}
	out := stats.NetworkStats{Time: time.Now()}
	for _, l := range list {
		a := l.Attrs()
		if a.EncapType == "loopback" || a.Statistics == nil {
			continue
		}
		out.Interfaces = append(out.Interfaces, stats.InterfaceStats{
			Name: a.Name, RxBytes: a.Statistics.RxBytes, RxErrors: a.Statistics.RxErrors,
			TxBytes: a.Statistics.TxBytes, TxErrors: a.Statistics.TxErrors,
		})
	}
	slices.SortFunc(out.Interfaces, func(a, b stats.InterfaceStats) int {
		return cmp.Compare(a.Name, b.Name)
	})
	return out, nil
}
