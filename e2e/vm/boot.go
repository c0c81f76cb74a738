package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/e2e/build"
	"jettison/e2e/guestapi"
)

// Say reports progress.
type Say = build.Say

// Options configure a node. The zero value works.
type Options struct {
	Kernel string // a key of Kernels; empty: 6.12
	MiB    int    // memory; 0: 1024
	// CPUs; 0: 1. They take turns on one thread of the host. With a thread per CPU, QEMU 7.2
	// sometimes runs stale code when one CPU patches code that another is about to execute (the
	// kernel's static keys), and the guest dies of "Oops: int3". One thread is no slower here and
	// leaves a core for a second node.
	CPUs int
	// Systemd boots a Debian with systemd as process 1 and as the runtime's cgroup driver.
	Systemd bool
	// CRIO is a folder with the programs of CRI-O (crioPrograms), which the node then runs instead of
	// containerd. Empty: containerd.
	CRIO string
	// Layout is the place of containers in the cgroup hierarchy.
	Layout  Layout
	Kubelet bool // puts a kubelet on the disk, for StartKubelet; building it takes minutes, once
	// ImageMiB gives the runtime its own disk of this size, so that imagefs differs from nodefs; 0:
	// none.
	ImageMiB int
	// Disk is the file for the root disk, for CutPower; Boot creates it. Empty: writes are lost
	// when QEMU ends.
	Disk string
	// PodPids is pids.max of each pod's cgroup, like a kubelet's podPidsLimit; 0: no limit.
	PodPids int
	// Reach maps ADDRESS:PORT in the guest's network 10.0.2.0/24 to HOST:PORT on this machine. The
	// guest reaches nothing else.
	Reach map[string]string
	// Ports of the guest that this machine reaches in addition to the harness's own. Node.Address
	// returns their addresses.
	Ports []int
	Say   Say // progress; nil: silent
}

// Node is a running test node.
type Node struct {
	Kernel   string // the guest's kernel version, as packaged
	Runtime  guestapi.Runtime
	systemd  bool // process 1, and the cgroup driver unless layout differs
	layout   Layout
	say      Say
	http     *http.Client
	address  map[int]string // a port of the guest (guestapi) to host:port on this machine
	conn     *grpc.ClientConn
	client   cri.RuntimeServiceClient
	images   cri.ImageServiceClient
	console  *console
	kill     context.CancelFunc
	ended    chan struct{} // closed after QEMU was reaped
	pid      int           // of QEMU
	capacity int64         // MemTotal of the guest in bytes
	pods     []*Pod
	kubelet  bool // a kubelet runs, which allows only static pods
	podPids  int  // pids.max of each pod; 0: no limit
	earlyoom bool // its files are installed
	options  Options
	image    *image

	kubeletPID int // in the guest; 0: none was started
}

// Deadlines are ten times the time that an idle two-core machine under software emulation needs.
const (
	bootDeadline    = 60 * time.Second
	runtimeDeadline = 5 * time.Minute // a restarted containerd asks each shim in turn, for 5 s at most
	callDeadline    = 60 * time.Second
	podDeadline     = 8 * time.Minute // the runtime writes a large pod to its disk many times
	importDeadline  = 5 * time.Minute
)

var preparing sync.Mutex // held while this checkout's programs are built

// Prepare builds everything that a node with this kernel needs, without booting it.
func Prepare(ctx context.Context, kernel string, say Say) error {
	_, _, err := prepare(ctx, Options{Kernel: kernel, Say: say})
	return err
}

// PrepareImages builds the tars of this checkout's images, bin/*.tar, for a node of another system
// (kind).
func PrepareImages(ctx context.Context, say Say) error {
	preparing.Lock()
	defer preparing.Unlock()
	return (&parts{}).ownPrograms(ctx, say)
}

func prepare(ctx context.Context, o Options) (*parts, *image, error) {
	preparing.Lock()
	defer preparing.Unlock()
	p := &parts{}
	if err := p.kernel(ctx, o.Kernel, o.Say); err != nil {
		return nil, nil, err
	}
	if err := p.runtimeTools(ctx, o.Say); err != nil {
		return nil, nil, err
	}
	if o.CRIO != "" {
		if err := p.crio(o.CRIO); err != nil {
			return nil, nil, err
		}
	}
	if o.Systemd {
		if err := p.distribution(ctx, o.Say); err != nil {
			return nil, nil, err
		}
	}
	if o.Kubelet {
		if err := p.kubelet(ctx, o.Say); err != nil {
			return nil, nil, err
		}
	}
	if err := p.ownPrograms(ctx, o.Say); err != nil {
		return nil, nil, err
	}
	image, err := p.build(ctx, o.Say)
	if err == nil && o.ImageMiB > 0 {
		image.second, err = emptyDisk(ctx, o.ImageMiB, o.Say)
	}
	return p, image, err
}

// Boot starts a node and returns when its runtime answers and has the images. The caller closes it.
// The node also ends when this process ends for any reason.
func Boot(ctx context.Context, o Options) (*Node, error) {
	if o.Kernel == "" {
		o.Kernel = "6.12"
	}
	if o.MiB == 0 {
		o.MiB = 1024
	}
	if o.CPUs == 0 {
		o.CPUs = 1
	}
	if o.Say == nil {
		o.Say = func(string, ...any) {}
	}
	parts, image, err := prepare(ctx, o)
	if err != nil {
		return nil, err
	}
	if o.Disk != "" {
		if err := overlay(o.Disk, image.disk); err != nil {
			return nil, fmt.Errorf("boot node: %w", err)
		}
	}
	start := time.Now()
	var n *Node
	for try := 0; ; try++ {
		n = &Node{Kernel: parts.kernelVersion, Runtime: parts.engine, systemd: o.Systemd, layout: o.Layout, say: o.Say, podPids: o.PodPids, http: &http.Client{}, address: map[int]string{}, console: newConsole()}
		if err = n.powerOn(ctx, o, image); err == nil {
			break
		}
		n.Close()
		// Another process may have bound a port that was free a moment ago. Only that failure is
		// retried.
		if try == 3 || !strings.Contains(n.Console(), "Could not set up host forwarding") {
			return nil, fmt.Errorf("boot node: %w\n%s", err, n.Console())
		}
	}
	memory, err := n.Memory(ctx)
	if err != nil {
		n.Close()
		return nil, fmt.Errorf("boot node: %w\n%s", err, n.Console())
	}
	n.capacity = memory.Total
	o.Say("kernel %s is up after %.1f s", n.Kernel, time.Since(start).Seconds())
	if err := n.connect(ctx); err != nil {
		log := n.Tail(n.Runtime.Log(), 40)
		n.Close()
		return nil, fmt.Errorf("boot node: %w\n%s\n%s", err, log, n.Console())
	}
	if err := n.splitDrivers(ctx); err != nil {
		n.Close()
		return nil, fmt.Errorf("boot node: %w", err)
	}
	o.Say(n.Runtime.Name+" answers after %.1f s", time.Since(start).Seconds())
	n.options, n.image = o, image
	for _, tar := range []string{"pause.tar", "workload.tar"} {
		if err := n.Import(ctx, "/images/"+tar); err != nil {
			log := n.Tail(n.Runtime.Log(), 40)
			n.Close()
			return nil, fmt.Errorf("boot node: %w\n%s", err, log)
		}
	}
	o.Say("node is ready after %.1f s", time.Since(start).Seconds())
	return n, nil
}

// powerOn starts QEMU and waits until the guest's init prints on the console that it serves.
func (n *Node) powerOn(ctx context.Context, o Options, image *image) error {
	nic, err := n.network(o)
	if err != nil {
		return err
	}
	drive := func(file string) string { return "file=" + file + ",if=virtio,format=raw,snapshot=on,cache=unsafe" }
	root := drive(image.disk)
	if o.Disk != "" {
		root = persistentDrive(o.Disk)
	}
	args := []string{
		"-M", "q35", "-cpu", "max", "-accel", "tcg,thread=single", "-smp", strconv.Itoa(o.CPUs), "-m", strconv.Itoa(o.MiB),
		"-kernel", image.kernel, "-initrd", image.initrd, "-append", "console=ttyS0 psi=1 quiet panic=-1",
		"-drive", root,
		"-nic", nic, "-no-reboot", "-nodefaults", "-display", "none", "-serial", "stdio", "-monitor", "none",
	}
	if image.second != "" {
		args = append(args, "-drive", drive(image.second))
	}
	if runtime.GOARCH != "amd64" {
		return fmt.Errorf("the test node runs on amd64, this machine is %s", runtime.GOARCH)
	}
	// Not ctx: the caller may use a short one for booting only. The node ends with Close.
	life, kill := context.WithCancel(context.Background())
	n.kill, n.ended = kill, make(chan struct{})
	started := make(chan error)
	go func() {
		// The kernel sends Pdeathsig when the thread that started the child ends, so this goroutine
		// keeps its thread. QEMU then dies with this process, also when a test panics or is killed.
		runtime.LockOSThread()
		cmd := exec.CommandContext(life, "qemu-system-x86_64", args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
		cmd.Stdout, cmd.Stderr = n.console, n.console
		err := cmd.Start()
		if err == nil {
			n.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(n.ended)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start QEMU: %w: install the package qemu-system-x86", err)
	}
	select {
	case <-n.console.ready:
		return nil
	case <-n.ended:
		return errors.New("QEMU ended")
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(bootDeadline):
		return fmt.Errorf("the guest's init did not serve within %v", bootDeadline)
	}
}

// network returns QEMU's argument for the guest's network: forwarded ports of the guest, and host
// addresses the guest reaches.
func (n *Node) network(o Options) (string, error) {
	nic := "user,model=virtio-net-pci,restrict=on"
	for inside, here := range o.Reach {
		host, port, err := net.SplitHostPort(here)
		if err != nil {
			return "", fmt.Errorf("forward %s for the guest: %w", here, err)
		}
		nic += fmt.Sprintf(",guestfwd=tcp:%s-cmd:busybox nc %s %s", inside, host, port) // QEMU starts a process for each connection
	}
	insides := append([]int{guestapi.PortControl, guestapi.PortCRI, guestapi.PortAgent}, o.Ports...)
	ports, err := freePorts(len(insides))
	if err != nil {
		return "", err
	}
	for i, inside := range insides {
		n.address[inside] = "127.0.0.1:" + strconv.Itoa(ports[i])
		nic += fmt.Sprintf(",hostfwd=tcp:%s-:%d", n.address[inside], inside)
	}
	return nic, nil
}

// connect dials the guest's CRI and waits for its first answer.
func (n *Node) connect(ctx context.Context) error {
	conn, err := grpc.NewClient("passthrough:///"+n.address[guestapi.PortCRI], grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		return err
	}
	n.conn, n.client, n.images = conn, cri.NewRuntimeServiceClient(conn), cri.NewImageServiceClient(conn)
	return n.WaitRuntime(ctx)
}

// WaitRuntime waits until the runtime answers.
func (n *Node) WaitRuntime(ctx context.Context) error {
	return n.Eventually(ctx, runtimeDeadline, "the runtime answers", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err := n.client.Version(ctx, &cri.VersionRequest{})
		return err
	})
}

// Eventually polls check every tenth of a second until it returns nil. The guest sends no events to
// the host, so polling is the only way. The error has the awaited state and the last one seen.
func (n *Node) Eventually(ctx context.Context, limit time.Duration, what string, check func(context.Context) error) error {
	return n.eventually(ctx, 100*time.Millisecond, limit, what, check)
}

// eventually polls at the given interval: each poll costs the guest work.
func (n *Node) eventually(ctx context.Context, every, limit time.Duration, what string, check func(context.Context) error) error {
	deadline := time.After(limit)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-n.ended:
			return fmt.Errorf("waiting until %s: QEMU ended", what)
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, ctx.Err())
		case <-deadline:
			return fmt.Errorf("waited %v until %s: %w", limit, what, err)
		}
	}
}

// Close ends QEMU by its process id and waits for it. It may be called more than once.
func (n *Node) Close() {
	if n.conn != nil {
		n.conn.Close()
	}
	if n.kill != nil {
		n.kill()
		<-n.ended
	}
	n.http.CloseIdleConnections()
}

// Address returns HOST:PORT on this machine for one of Options.Ports, or "" for any other port.
func (n *Node) Address(port int) string { return n.address[port] }

// PID returns QEMU's process id.
func (n *Node) PID() int { return n.pid }

// Console returns the last 64 KiB that the guest and QEMU wrote to the serial console.
func (n *Node) Console() string { return n.console.String() }

// freePorts finds loopback ports without a listener.
func freePorts(count int) ([]int, error) {
	var ports []int
	for range count {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// console keeps the end of the serial output and detects the line that reports the guest as ready.
type console struct {
	mu    sync.Mutex
	text  []byte
	seen  bool
	ready chan struct{} // closed at that line
}

func newConsole() *console { return &console{ready: make(chan struct{})} }

func (c *console) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text = append(c.text, b...)
	if !c.seen && bytes.Contains(c.text, []byte("guest: ready")) {
		c.seen = true
		close(c.ready)
	}
	if len(c.text) > 128<<10 {
		c.text = append([]byte(nil), c.text[len(c.text)-64<<10:]...)
	}
	return len(b), nil
}

func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.text)
}
