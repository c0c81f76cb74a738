package kubeletdetect

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	system = "0::/system.slice/kubelet.service\n"
	pod    = "0::/kubepods/besteffort/pod1/c\n"

	root      = "Name:\tx\nUmask:\t0022\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\n"
	nodesUser = "-> user:[4026531837]"
	absent    = "(absent)" // a file that node has
)

// tree has the files of a /proc by path.
type tree map[string]string

// node returns the /proc of a node without a kubelet, with the files of more.
func node(more tree) tree {
	out := tree{
		"1/comm": "systemd\n", "1/cmdline": "/sbin/init\x00splash\x00", "1/cgroup": "0::/init.scope\n",
		"1/net/tcp": header, "1/net/tcp6": header, "1/ns/user": nodesUser,
		"2/comm": "kthreadd\n", "2/cmdline": "", "2/cgroup": "0::/\n",
		"77/comm": "containerd\n", "77/cmdline": "/usr/bin/containerd\x00", "77/cgroup": "0::/system.slice/containerd.service\n",
		"meminfo": "", "acpi/x": "",
	}
	for _, pid := range []string{"1", "2", "77"} {
		out[pid+"/status"], out[pid+"/ns/user"], out[pid+"/fd/0"] = root, nodesUser, "-> /dev/null"
	}
	for path, text := range more {
		out[path] = text
	}
	return out
}

func (tr tree) write(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	tr.put(t, dir)
	return dir
}

// put writes the tree into a directory.
func (tr tree) put(t testing.TB, dir string) {
	t.Helper()
	for path, text := range tr {
		if text == absent {
			continue
		}
		path = filepath.Join(dir, path)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if target, ok := strings.CutPrefix(text, "-> "); ok && err == nil {
			err = os.Symlink(target, path)
		} else if err == nil {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func process(pid, comm, exe, cgroup string) tree {
	return tree{
		pid + "/comm": comm + "\n", pid + "/exe": "-> " + exe, pid + "/cgroup": cgroup, pid + "/status": root, pid + "/ns/user": nodesUser,
	}
}

// of returns a kubelet's process with another status or user namespace than the node's root.
func of(status, user string) tree {
	return join(process("9", "kubelet", "/usr/bin/kubelet", system), tree{"9/status": status, "9/ns/user": user})
}

func uids(line string) string { return "Name:\tkubelet\nUid:\t" + line + "\nGid:\t0\t0\t0\t0\n" }

// noLink returns a process with a program link that cannot be read.
func noLink(pid, comm, cmdline string) tree {
	return tree{
		pid + "/comm": comm + "\n", pid + "/exe": "", pid + "/cmdline": cmdline, pid + "/cgroup": system,
		pid + "/status": root, pid + "/ns/user": nodesUser,
	}
}

func listens(port int, inode string) string {
	return fmt.Sprintf("   0: 0100007F:%04X 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 %s 1 0 100 0 0 10 0\n", port, inode)
}

// listensAs returns a listener of another user.
func listensAs(uid, port int, inode string) string {
	return strings.Replace(listens(port, inode), "     0        0 "+inode, fmt.Sprintf(" %5d        0 %s", uid, inode), 1)
}

// holder is a process of the node that holds a socket.
var holder = join(process("8", "x", "/x", system), tree{"8/fd/0": "-> /dev/null", "8/fd/3": "-> socket:[4711]"})

func TestKubelet(t *testing.T) {
	long := strings.Repeat("a", 3<<20)
	setuid := filepath.Join(t.TempDir(), "sudo")
	if err := errors.Join(os.WriteFile(setuid, nil, 0o755), os.Chmod(setuid, 0o755|os.ModeSetuid)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		more tree
		why  string // part of it; empty: no kubelet
	}{
		"none":                     {nil, ""},
		"kubelet":                  {process("812", "kubelet", "/usr/bin/kubelet", system), "process 812 is a kubelet"},
		"by its file":              {process("812", "main", "/usr/bin/kubelet", system), "process 812 is a kubelet"},
		"replaced by a newer":      {process("812", "main", "/usr/bin/kubelet (deleted)", system), "process 812 is a kubelet"},
		"of NixOS":                 {process("812", ".kubelet-wrapp", "/nix/store/x/bin/.kubelet-wrapped", system), "812 is a kubelet"},
		"microk8s":                 {process("9", "kubelite", "/snap/microk8s/1/kubelite", "0::/system.slice/snap.microk8s.daemon-kubelite.service\n"), "kubelite"},
		"k3s":                      {process("9", "k3s-server", "/var/lib/rancher/k3s/data/1/bin/k3s", "0::/system.slice/k3s.service\n"), "k3s-server"},
		"hyperkube":                {process("9", "sh", "/hyperkube", "0::/docker/0123\n"), "hyperkube"},
		"in a container, no pod":   {process("9", "kubelet", "/kubelet", "0::/podruntime/kubelet\n"), "kubelet"},
		"in a node of kind":        {process("9", "kubelet", "/kubelet", "0::/kubelet.slice/kubelet.service\n"), "kubelet"},
		"no cgroup at all":         {process("9", "kubelet", "/kubelet", ""), "kubelet"},
		"in a pod":                 {process("9", "kubelet", "/kubelet", pod), ""},
		"in a pod, not asked more": {join(process("9", "kubelet", "/kubelet", pod), tree{"9/status": ""}), ""},
		"in a pod, systemd":        {process("9", "kubelet", "/kubelet", "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice/cri-containerd-2.scope\n"), ""},
		"in a pod of kind":         {process("9", "k3s", "/k3s", "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod1.slice/cri-containerd-2.scope\n"), ""},
		"in a pod, from inside":    {process("9", "kubelet", "/kubelet", "0::/../../kubepods-burstable-pod1.slice/cri-containerd-2.scope\n"), ""},
		"in a pod, hybrid":         {process("9", "kubelet", "/kubelet", "9:name=systemd:/kubepods/pod1/c\n1:memory:/kubepods/pod1/c\n0::/\n"), ""},
		"a colon in a path":        {process("9", "kubelet", "/kubelet", "0::/a:b/kubepods/pod1\n"), ""},
		"nearly kubepods":          {process("9", "kubelet", "/kubelet", "0::/notkubepods/kubepods2/xkubepods.slice/kubepods.service\n"), "kubelet"},
		"other names":              {process("9", "kubelet-exporte", "/bin/kubelet-exporter", system), ""},
		"another's folder":         {process("9", "x", "/opt/kubelet/bin/x", system), ""},
		"a binary name":            {process("9", "\xff\x00\nkubelet", "/\xff\nkubelet", system), ""},
		"a huge name":              {process("9", long, strings.Repeat("/kubelet", 500)+"x", system), ""},
		"no link, its command":     {noLink("9", "main", "/usr/local/bin/k3s server\x00\x00\x00"), "is a k3s"},
		"no link, a pod's":         {tree{"9/comm": "main\n", "9/exe": "", "9/cmdline/not": "read", "9/cgroup": pod}, ""},
		"no link, an argument":     {noLink("9", "vim", "vim\x00/usr/bin/kubelet\x00"), ""},
		"no link, binary":          {noLink("9", "x", "\x00\x00/kubelet"), ""},
		"no link, huge":            {noLink("9", "x", long+"/kubelet\x00"), ""},
		"no link, empty":           {noLink("9", "", ""), ""},
		"no link, only slashes":    {noLink("9", "x", "////\x00"), ""},
		"another user's":           {of(uids("1000\t1000\t1000\t1000"), nodesUser), ""},
		"root by a set-uid bit":    {of(uids("1000\t0\t0\t0"), nodesUser), ""},
		"a set-uid program":        {process("9", "kubelet", setuid, system), ""},
		"in a user namespace":      {of(root, "-> user:[4026532210]"), ""},
		"no user namespaces":       {join(of(root, nodesUser), tree{"9/ns/user": absent, "1/ns/user": absent}), "process 9 is a kubelet"},
		"its namespace is secret":  {of(root, ""), "the search failed: "},
		"no status":                {of("", nodesUser), "the search failed: "},
		"a status of nonsense":     {of(uids("0"), nodesUser), "the search failed: "},
		"in a pod, beside a pod":   {process("9", "kubelet", "/kubelet", "0::/../../../besteffort/pod0fa5bd1e-40dd-4c6a-a5ac-cbb7e0d3ad1c/c\n"), ""},
		"a sister pod":             {process("9", "kubelet", "/kubelet", "0::/../../pod0fa5bd1e-40dd-4c6a-a5ac-cbb7e0d3ad1c/c\n"), ""},
		"a sister static pod":      {process("9", "kubelet", "/kubelet", "0::/../../pod0fa5bd1e40dd4c6aa5accbb7e0d3ad1c/c\n"), ""},
		"the node, from a pod":     {process("9", "kubelet", "/kubelet", "0::/../../../../podruntime/kubelet\n"), "kubelet"},
		"port 10250":               {join(holder, tree{"1/net/tcp": header + listens(22, "5") + listens(10250, "4711")}), "listens on port 10250"},
		"port 10248":               {join(holder, tree{"1/net/tcp6": header + strings.Replace(listens(10248, "4711"), "0100007F", "00000000000000000000000001000000", 1)}), "port 10248"},
		"port 10255":               {join(holder, tree{"1/net/tcp": header + listens(10255, "4711")}), "port 10255"},
		"another port":             {join(holder, tree{"1/net/tcp": header + listens(10256, "4711") + listens(443, "1")}), ""},
		"a client of it":           {tree{"1/net/tcp": header + strings.Replace(listens(10250, "4711"), " 0A ", " 01 ", 1) + "garbage\n"}, ""},
		"no IPv6":                  {tree{"1/net/tcp6": ""}, ""},
		"nobody has the port":      {tree{"1/net/tcp": header + listens(10255, "4711")}, ""},
		"a pod has the port":       {join(process("9", "web", "/web", pod), tree{"9/fd/0": "-> /dev/null", "9/fd/3": "-> socket:[4711]", "1/net/tcp": header + listens(10250, "4711")}), ""},
		"a pod, and something":     {join(holder, process("9", "web", "/web", pod), tree{"9/fd/3": "-> socket:[4710]", "1/net/tcp": header + listens(10250, "4710") + listens(10250, "4711")}), "port 10250"},
		"a pod without descriptor": {join(process("9", "web", "/web", pod), tree{"1/net/tcp": header + listens(10250, "4711")}), ""},
		"a pod's are not counted":  {join(process("9", "web", "/web", pod), tree{"9/fd": "not a directory", "1/net/tcp": header + listens(10250, "4711")}), ""},
		"another user's port":      {join(holder, tree{"1/net/tcp": header + listensAs(1000, 10255, "4711")}), ""},
		"a sub-user's port":        {join(holder, tree{"1/net/tcp6": header + listensAs(100000, 10250, "4711")}), ""},
		"the node's own port":      {join(process("9", "x", "/x", system), tree{"9/fd/3": "-> socket:[4711]", "1/net/tcp": header + listens(10250, "4711")}), "port 10250"},
		"root by a set-uid bit has the port": {join(of(uids("1000\t0\t0\t0"), nodesUser), tree{"9/comm": "nc\n", "9/exe": "-> /bin/nc",
			"9/fd/3": "-> socket:[4711]", "1/net/tcp": header + listens(10250, "4711")}), ""},
		"a user namespace has the port": {join(of(root, "-> user:[4026532210]"), tree{"9/comm": "nc\n", "9/exe": "-> /bin/nc",
			"9/fd/3": "-> socket:[4711]", "1/net/tcp": header + listens(10250, "4711")}), ""},
		"a pod and the node have the port": {join(process("9", "web", "/web", pod), process("10", "x", "/x", system), tree{"9/fd/3": "-> socket:[4711]",
			"10/fd/3": "-> socket:[4711]", "1/net/tcp": header + listens(10250, "4711")}), "port 10250"},
		"in a cgroup too deep":   {process("9", "kubelet", "/kubelet", "-> "+strings.Repeat("a", 300)), ""}, // it cannot be opened: ENAMETOOLONG
		"an owner of nonsense":   {tree{"1/net/tcp": header + strings.Replace(listens(10250, "4711"), "  0        0 4711", "  x        0 4711", 1)}, "the search failed: "},
		"a table of nonsense":    {tree{"1/net/tcp": header + "no sockets here\n"}, "the search failed: "},
		"a port of nonsense":     {tree{"1/net/tcp": header + strings.Replace(listens(1, "1"), ":0001", ":zzzz", 1)}, "the search failed: "},
		"an endless line":        {tree{"1/net/tcp": header + long}, "line longer than"},
		"not the node's /proc":   {tree{"self": "-> 1"}, "mount the node's /proc"},
		"a pod's /proc":          {tree{"1/cgroup": pod}, "mount the node's /proc"},
		"a directory for a file": {tree{"9/comm/x": ""}, "the search failed: read "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := node(c.more).write(t)
			beside, why := new(Finder).Kubelet(dir)
			if beside != (c.why != "") || !strings.Contains(why, c.why) || strings.Contains(why, "\n") || len(why) > 300 {
				t.Errorf("found = %v, evidence %.400q; want %q", beside, why, c.why)
			}
		})
	}
}

// An invisible program of root may be a set-uid program that a user started under a kubelet's name.
// A process of a user's login counts only if root listens on a kubelet's port. A service always
// counts.
func TestInvisibleProgram(t *testing.T) {
	unseen := func(login string) tree { // by a link to itself
		return join(process("9", "kubelet", "exe", system), tree{"9/loginuid": login})
	}
	for name, c := range map[string]struct {
		more tree
		why  string // part of it; empty: no kubelet
	}{
		"a service":                   {unseen("4294967295"), "process 9 is a kubelet"},
		"by root's login":             {unseen("0\n"), "process 9 is a kubelet"},
		"no audit":                    {unseen(absent), "process 9 is a kubelet"},
		"by a user":                   {unseen("1000"), ""},
		"by a user, root listens":     {join(unseen("1000"), tree{"1/net/tcp": header + listens(10250, "4711")}), "process 9 is a kubelet"},
		"by a user, a user listens":   {join(unseen("1000"), tree{"1/net/tcp": header + listensAs(1000, 10250, "4711")}), ""},
		"by a user, root's elsewhere": {join(unseen("1000"), tree{"1/net/tcp": header + listens(22, "4711")}), ""},
		"a directory for a file":      {join(unseen(absent), tree{"9/loginuid/x": ""}), "the search failed: read "},
		"by a user, and seen":         {join(process("9", "kubelet", "/", system), tree{"9/loginuid": "1000"}), "process 9 is a kubelet"},
	} {
		if beside, why := new(Finder).Kubelet(node(c.more).write(t)); beside != (c.why != "") || !strings.Contains(why, c.why) {
			t.Errorf("%s: found = %v, evidence %q; want %q", name, beside, why, c.why)
		}
	}
}

// A Finder checks the process of its last result first, and drops it when it is no kubelet any
// more.
func TestFinderChecksLastProcessFirst(t *testing.T) {
	dir := node(process("812", "kubelet", "/usr/bin/kubelet", system)).write(t)
	var f Finder
	look := func(want string) {
		t.Helper()
		if found, why := f.Kubelet(dir); found != (want != "") || !strings.Contains(why, want) {
			t.Errorf("found = %v, evidence %q; want %q", found, why, want)
		}
	}
	comm := filepath.Join(dir, "812/comm")
	set := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	look("process 812")
	process("9", "k3s", "/k3s", system).put(t, dir) // listed before it, but no other is checked while that one runs
	look("process 812")
	set(filepath.Join(dir, "812/cgroup"), pod)
	look("process 9 is a k3s")
	set(filepath.Join(dir, "9/comm"), "sh\n")
	if err := os.Remove(filepath.Join(dir, "9/exe")); err != nil {
		t.Fatal(err)
	}
	look("")
	set(filepath.Join(dir, "812/cgroup"), system)
	look("process 812")
	if err := os.RemoveAll(filepath.Dir(comm)); err != nil {
		t.Fatal(err)
	}
	look("")
	if err := os.WriteFile(filepath.Join(dir, "1/cgroup"), []byte(pod), 0o644); err != nil {
		t.Fatal(err)
	}
	look("mount the node's /proc")
}

func join(trees ...tree) tree {
	out := tree{}
	for _, tr := range trees {
		for path, text := range tr {
			out[path] = text
		}
	}
	return out
}

// An unreadable /proc counts as a kubelet.
func TestUnreadableProcCountsAsKubelet(t *testing.T) {
	noTCP := node(nil)
	delete(noTCP, "1/net/tcp")
	for name, dir := range map[string]string{
		"nothing":      filepath.Join(t.TempDir(), "none"),
		"not mounted":  t.TempDir(),
		"a file":       filepath.Join(node(nil).write(t), "meminfo"),
		"no process 1": tree{"77/comm": "x\n", "77/cgroup": system, "77/cmdline": ""}.write(t),
		"no network":   noTCP.write(t),
	} {
		if beside, why := new(Finder).Kubelet(dir); !beside || !strings.Contains(why, "the search failed") {
			t.Errorf("%s: found = %v, evidence %q, want a possible kubelet", name, beside, why)
		}
	}
}

// The node has more listeners than a buffer holds.
func TestManyListeners(t *testing.T) {
	var b strings.Builder
	b.WriteString(header)
	for i := range 5000 {
		b.WriteString(listens(20000+i, strconv.Itoa(i)))
	}
	for want, text := range map[bool]string{false: b.String(), true: b.String() + listens(10250, "4711")} {
		if beside, why := new(Finder).Kubelet(node(join(holder, tree{"1/net/tcp": text})).write(t)); beside != want {
			t.Errorf("found = %v, evidence %q, want the listener", beside, why)
		}
	}
}

// The search works on this machine's /proc: before, while and after a process of the kubelet's name
// runs, and while other processes start and end.
func TestThisMachine(t *testing.T) {
	alone(t)
	if beside, why := new(Finder).Kubelet(""); beside {
		t.Skipf("this machine has a kubelet (%s): the virtual machine's scenarios run without one and beside one", why)
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "jettison-beside-") // one that another user reaches, too
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	file, link := filepath.Join(dir, "kubelet"), filepath.Join(dir, "sleep") // comm is the link's name
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(file, program, 0o755), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	runs := func(attr *syscall.SysProcAttr) (pid int, beside bool, why string) {
		cmd := exec.Command(link, "600")
		cmd.SysProcAttr = attr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		beside, why = new(Finder).Kubelet("/proc")
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return cmd.Process.Pid, beside, why
	}
	pid, beside, why := runs(nil)
	if want := fmt.Sprintf("process %d is a kubelet", pid); os.Geteuid() == 0 && (!beside || why != want) {
		t.Errorf("found = %v, evidence %q; want %q", beside, why, want)
	} else if os.Geteuid() != 0 && beside {
		t.Errorf("process of another user counts as a kubelet: %q", why)
	}
	if os.Geteuid() == 0 {
		for name, attr := range map[string]*syscall.SysProcAttr{
			"another user's": {Credential: &syscall.Credential{Uid: 65534, Gid: 65534}},
			"in a user namespace": {
				Cloneflags:  syscall.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{Size: 1}}, GidMappings: []syscall.SysProcIDMap{{Size: 1}},
			},
		} {
			if _, beside, why := runs(attr); beside {
				t.Errorf("%s counts as a kubelet: %q", name, why)
			}
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:10255")
	if err != nil {
		t.Fatal(err)
	}
	beside, why = new(Finder).Kubelet("/proc")
	l.Close()
	if !inNodesNetwork(t) {
		t.Log("process 1 is in another network namespace")
	} else if !beside || why != "a process of root listens on port 10255" {
		t.Errorf("listener on port 10255: found = %v, evidence %q", beside, why)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = exec.Command(sleep, "0").Run()
			}
		}
	}()
	for range 200 {
		if beside, why := new(Finder).Kubelet("/proc"); beside {
			t.Errorf("found a kubelet while processes start and end: %q", why)
			break
		}
	}
	close(stop)
	<-done
}

// alone waits until no parallel run of this test shows a kubelet.
func alone(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(os.TempDir(), "jettison-beside-test.lock"), os.O_RDONLY|os.O_CREATE, 0o644)
	if err != nil {
		t.Log("a parallel run may disturb this test: ", err) // another program's file
		return
	}
	t.Cleanup(func() { f.Close() })
	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		t.Log("a parallel run may disturb this test: ", err)
	}
}

func inNodesNetwork(t *testing.T) bool {
	t.Helper()
	var own, first unix.Stat_t
	return unix.Stat("/proc/self/ns/net", &own) == nil && unix.Stat("/proc/1/ns/net", &first) == nil && own.Ino == first.Ino
}

func FuzzListening(f *testing.F) {
	f.Add([]byte(header + listens(10250, "1")))
	f.Fuzz(func(t *testing.T, text []byte) {
		for line := range strings.Lines(string(text)) {
			if s, listens, err := parseSocket([]byte(line)); err != nil && (listens || s != socket{}) {
				t.Errorf("parse line %q: got %+v, error %v", line, s, err)
			}
		}
		n := 0
		if took, _, _ := parseDiag(text, func(socket) { n++ }); took != n {
			t.Errorf("parse %q: take was called %d times, took = %d", text, n, took)
		}
		podPath(string(text))
		kubeletName(text)
	})
}

// BenchmarkKubelet searches this machine, with at least 300 processes.
func BenchmarkKubelet(b *testing.B) {
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		b.Fatal(err)
	}
	for range 300 - len(names) {
		cmd := exec.Command("sleep", "600")
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	b.Run("all", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			new(Finder).Kubelet("/proc")
		}
	})
	p, err := openProc("/proc")
	if err != nil {
		b.Fatal(err)
	}
	defer p.close()
	if err := p.list(); err != nil {
		b.Fatal(err)
	}
	processes := func() (string, error) { _, why, err := p.searchNames(); return why, err }
	for name, part := range map[string]func() (string, error){"processes": processes, "ports": p.searchListeners} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if why, err := part(); why != "" || err != nil {
					b.Fatal(why, err)
				}
			}
		})
	}
}

// If the kernel lacks memory for a process's files, it reports them as absent. A process that is
// still listed afterwards may be a kubelet.
func TestProcessWithoutFiles(t *testing.T) {
	for name, missing := range map[string][]string{"comm": {"9/comm"}, "cgroup": {"9/cgroup"}, "status": {"9/status"}, "all": {"9/comm", "9/exe", "9/cgroup"}} {
		files := node(process("9", "kubelet", "/usr/bin/kubelet", system))
		for _, file := range missing {
			delete(files, file)
		}
		files["9/x"] = ""
		if beside, why := new(Finder).Kubelet(files.write(t)); !beside || !strings.Contains(why, "process 9 exists, but its files are missing") {
			t.Errorf("%s: found = %v, evidence %q, want process 9", name, beside, why)
		}
	}
	files := node(nil)
	delete(files, "1/cgroup")
	if beside, why := new(Finder).Kubelet(files.write(t)); !beside || !strings.Contains(why, "process 1 exists, but its files are missing") {
		t.Errorf("process 1 without files: found = %v, evidence %q", beside, why)
	}
}

// A process that ended is no kubelet. A process with files again is checked.
func TestProcessThatSeemsGone(t *testing.T) {
	kubelet := process("9", "kubelet", "/usr/bin/kubelet", system)
	for name, c := range map[string]struct {
		does func(dir string)
		want string
	}{
		"gone": {func(dir string) { _ = os.RemoveAll(filepath.Join(dir, "9")) }, ""},
		"back": {func(dir string) { kubelet.put(t, dir) }, "process 9 is a kubelet"},
	} {
		dir := node(tree{"9/x": ""}).write(t)
		p, err := openProc(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.list(); err != nil {
			t.Fatal(err)
		}
		_, why, err := p.each(func(pid int) (string, bool, error) {
			why, gone, err := p.evidence(pid)
			if pid == 9 && gone {
				c.does(dir)
			}
			return why, gone, err
		})
		if why != c.want || err != nil {
			t.Errorf("search with %s: evidence %q, error %v", name, why, err)
		}
		p.close()
	}
}
