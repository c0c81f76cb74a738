package e2e

import (
	"fmt"
	"strings"
	"testing"

	"jettison/e2e/guestapi"
)

// On a node that does not meet its requirements the agent prints one line with the problem, its
// place and the remedy, and exits with code 1.
func TestPromiseBadNodesGetAClearError(t *testing.T) {
	n := startNode(t)
	const wait = "apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\nruntimeWait: 2s\n"
	config := func(name, more string) string {
		if err := n.WriteFile(n.ctx, "/tmp/"+name, []byte(wait+more)); err != nil {
			t.Fatal(err)
		}
		return " run --config /tmp/" + name
	}
	n.shell("mkdir -p /tmp/ro /tmp/none && mount -t cgroup2 -o ro cgroup2 /tmp/ro")
	n.shell("/sbin/init dead-socket /run/dead.sock")
	other := "/run/containerd/containerd.sock.ttrpc"
	if n.Runtime == guestapi.CRIO {
		other = "/run/nri/nri.sock"
	}
	for _, c := range []struct{ name, line, want string }{
		{"an ordinary user", "su nobody -c '/usr/local/bin/jettison" + config("h", "") + "'",
			"/sys/fs/cgroup: user 65534 cannot kill pods: run the agent as root (docs/operate/privileges.md), or with --dry-run"},
		{"no socket", config("a", "containerRuntimeEndpoint: unix:///run/none.sock\n"),
			"container runtime unix:///run/none.sock: no answer within 2s: no such socket: start the runtime, or set containerRuntimeEndpoint"},
		{"a socket that nobody listens on", config("b", "containerRuntimeEndpoint: unix:///run/dead.sock\n"),
			"container runtime unix:///run/dead.sock: no answer within 2s: nothing listens on that socket: start the runtime, or set containerRuntimeEndpoint"},
		{"a service that is no CRI", config("c", "containerRuntimeEndpoint: unix://"+other+"\n"),
			"container runtime unix://" + other + ": no answer within 2s: the socket accepts connections but does not answer in CRI v1"},
		{"cgroupfs mounted read-only", config("e", "") + " --cgroup-mount /tmp/ro",
			"/tmp/ro: mounted read-only, pods cannot be killed: run the agent privileged (docs/operate/privileges.md), or with --dry-run"},
		{"no cgroup v2 there", config("f", "") + " --cgroup-mount /tmp/none", "/tmp/none: not a cgroup v2 hierarchy"},
		{"no /proc there", config("g", "") + " --proc-mount /tmp/none", "mount the node's /proc there, or set --proc-mount"},
	} {
		line := c.line
		if strings.HasPrefix(line, " ") {
			line = "/usr/local/bin/jettison" + line
		}
		res, err := n.Exec(n.ctx, "/bin/sh", "-c", line)
		if err != nil {
			t.Fatal(err)
		}
		said, text := "", string(res.Stderr)
		for strings.HasPrefix(text, "time=") { // skip early log lines about the runtime and the waits
			first, rest, _ := strings.Cut(text, "\n")
			said, text = said+first+"\n", rest
		}
		waits := strings.Contains(c.want, "no answer within")
		if res.Code != 1 || !strings.HasPrefix(text, "jettison: ") || !strings.Contains(text, c.want) || strings.Count(text, "\n") != 1 ||
			waits != strings.Contains(said, "waiting for container runtime") || !waits && said != "" {
			t.Errorf("%s: exit code %d, stderr %q, want 1, one line with %q, and waiting: %v", c.name, res.Code, res.Stderr, c.want, waits)
		}
	}
}

// The agent as the node's user sees it from outside: last choice of the kernel's OOM killer, with
// its pages locked.
func TestPromiseTheAgentProtectsItself(t *testing.T) {
	n := startNode(t)
	n.startAgent("")
	pid := n.mainProcess(n.agent.Pod)
	if got := strings.TrimSpace(n.shell("cat /proc/" + pid + "/oom_score_adj")); got != "-999" {
		t.Errorf("agent's oom_score_adj = %s, want -999", got)
	}
	n.until("memory is locked, once the start is over", func() error {
		status := n.shell("cat /proc/" + pid + "/status")
		if strings.Contains(status, "VmLck:\t       0 kB") || !strings.Contains(status, "VmLck:") {
			return fmt.Errorf("the agent has no locked memory:\n%s", status)
		}
		return nil
	})
	for _, l := range n.agentLog() {
		// What it advises depends on how fast the machine is at the moment.
		if l.Fields["level"] != "INFO" && !strings.HasPrefix(l.Msg, "memory.available hard threshold smaller") {
			t.Errorf("as its DaemonSet runs it, the agent has something to complain about: %v", l.Fields)
		}
	}
}

// The kubelet's own file suffices: the agent uses its threshold and formula. With CRI-O a kubelet, too,
// needs the socket: its default is containerd's.
func TestAKubeletsFileIsEnough(t *testing.T) {
	n := startNode(t)
	file := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncgroupDriver: cgroupfs\nevictionHard: {memory.available: 150Mi}\n"
	if n.Runtime == guestapi.CRIO {
		file += "containerRuntimeEndpoint: unix://" + n.Runtime.Socket + "\n"
	}
	n.startAgent(file)
	n.fillTo(130 * mib)
	n.dies(n.run(leaker()))
	line := n.agentLogs("evicted", 1)
	if got := line.Fields["threshold"]; got != float64(150*mib) {
		t.Errorf("threshold of the eviction = %v, want the file's", got)
	}
}
