package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Addresses of the test's pods and of the node that they see, of a range for benchmarks (RFC 2544).
const (
	podNetworkNode = "198.18.37.1"
	podNetworkPods = 4
)

// podNetwork is a network namespace with the addresses of pods. A virtual link connects it to this
// machine, as a CNI plugin does.
type podNetwork struct {
	own, pods netns.NsHandle
}

// newPodNetwork makes the namespace, which ends with the test.
func newPodNetwork(t *testing.T) *podNetwork {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a network namespace")
	}
	n := &podNetwork{}
	if err := n.make(fmt.Sprint("jp", os.Getpid())); err != nil {
		t.Fatalf("make the network of pods: %v", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(n.pods.Close(), n.own.Close()); err != nil {
			t.Error(err)
		}
	})
	return n
}

// make makes the namespace and the link, which ends with it.
func (n *podNetwork) make(name string) (err error) {
	runtime.LockOSThread() // without unlock after an error: the thread ends with its goroutine
	if n.own, err = netns.Get(); err != nil {
		return err
	}
	if n.pods, err = netns.New(); err != nil { // and enters it
		return err
	}
	if err := netns.Set(n.own); err != nil {
		return err
	}
	runtime.UnlockOSThread()
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(n.pods))}
	if err := netlink.LinkAdd(link); err != nil {
		return err
	}
	here, err := netlink.NewHandle()
	if err != nil {
		return err
	}
	defer here.Close()
	there, err := netlink.NewHandleAt(n.pods)
	if err != nil {
		return err
	}
	defer there.Close()
	var addresses []string
	for i := range podNetworkPods {
		addresses = append(addresses, n.pod(i))
	}
	return errors.Join(up(here, name, podNetworkNode), up(there, "eth0", addresses...))
}

// up gives a link its addresses, and starts it.
func up(h *netlink.Handle, name string, addresses ...string) error {
	link, err := h.LinkByName(name)
	if err != nil {
		return err
	}
	for _, a := range addresses {
		address, err := netlink.ParseAddr(a + "/24")
		if err == nil {
			err = h.AddrAdd(link, address)
		}
		if err != nil {
			return err
		}
	}
	return h.LinkSetUp(link)
}

// pod returns the address of a pod.
func (n *podNetwork) pod(i int) string { return fmt.Sprint("198.18.37.", 10+i) }

// dialers return connections to a port of the node: from loopback, and from each pod.
func (n *podNetwork) dialers(port string) (out []dialer) {
	out = append(out, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
	})
	for i := range podNetworkPods {
		from := &net.TCPAddr{IP: net.ParseIP(n.pod(i))}
		out = append(out, func(ctx context.Context) (net.Conn, error) {
			return n.dial(ctx, from, net.JoinHostPort(podNetworkNode, port))
		})
	}
	return out
}

// dial connects from the address of a pod. The socket belongs to the namespace of the thread that
// makes it.
func (n *podNetwork) dial(ctx context.Context, from net.Addr, to string) (net.Conn, error) {
	runtime.LockOSThread()
	if err := netns.Set(n.pods); err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{LocalAddr: from}).DialContext(ctx, "tcp", to)
	if back := netns.Set(n.own); back != nil {
		return nil, errors.Join(err, back)
	}
	runtime.UnlockOSThread()
	return conn, err
}
