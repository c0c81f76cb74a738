package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"jettison/e2e/vm"
)

// service is a node with systemd on which the agent runs as a service from its Debian package.
type service struct{ *node }

// installed boots a node, installs a version of the package with a configuration, and enables the
// service.
func installed(t *testing.T, version, config string) *service {
	t.Helper()
	s := &service{startNodeWith(t, vm.Options{Systemd: true})}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // the test's own context has ended
		defer cancel()
		log, err := s.Shell(ctx, "journalctl --unit=jettison --output=cat --no-pager --lines=60; systemctl status --no-pager jettison || true")
		t.Logf("the service's log (%v):\n%s", err, log)
	})
	s.dpkg("--install", s.bring(version))
	if state := s.shell("systemctl is-enabled jettison; systemctl is-active jettison; true"); state != "disabled\ninactive\n" {
		t.Errorf("service after the installation is %q, want it not started: the administrator starts it", state)
	}
	if err := s.WriteFile(s.ctx, "/etc/jettison/config.yaml", []byte(config)); err != nil {
		t.Fatal(err)
	}
	s.shell(`sed -i 's/^JETTISON_ARGS=.*/JETTISON_ARGS="--log-format=json"/' /etc/default/jettison && systemctl enable --now jettison`)
	s.awaitLog("started", 1)
	return s
}

func (s *service) bring(version string) string {
	s.t.Helper()
	path, err := s.BringPackage(s.ctx, version)
	if err != nil {
		s.t.Fatal(err)
	}
	return path
}

func (s *service) dpkg(args ...string) {
	s.t.Helper()
	s.shell("DEBIAN_FRONTEND=noninteractive dpkg " + strings.Join(args, " "))
}

// awaitLog waits for the count-th line of the service's log with a message.
func (s *service) awaitLog(msg string, count int) (line vm.LogLine) {
	s.t.Helper()
	s.until(fmt.Sprintf("the service logs %q for the %d. time", msg, count), func() error {
		lines, err := s.ServiceLog(s.ctx)
		seen := 0
		for _, l := range lines {
			if l.Msg == msg {
				if seen++; seen == count {
					line = l
					return nil
				}
			}
		}
		return errors.Join(err, fmt.Errorf("seen %d of %d, in %d lines", seen, count, len(lines)))
	})
	return line
}

// expectAllSteps asserts that a self-test passes every step: the unit's restrictions prevent none.
func expectAllSteps(t *testing.T, line vm.LogLine) {
	t.Helper()
	for _, rung := range []string{"cgroup.kill", "pidfd", "cpu", "mrelease"} {
		if got, _ := line.Fields[rung].(string); !strings.HasPrefix(got, "works") {
			t.Errorf("self-test of step %s = %q, want success", rung, got)
		}
	}
}

// The package's life cycle: installed, enabled, upgraded from an earlier version, killed, removed,
// purged. An upgrade keeps the administrator's configuration and restarts a running service. A
// removal restores the node's cgroups, also after a crash. A purge leaves no file.
func TestTheDebLives(t *testing.T) {
	const reserve = "writeAllocatable: true\nmemoryQoS: true\nkubeReserved: {memory: 100Mi}"
	s := installed(t, "0.0.1", config(reserve))
	if v := s.awaitLog("started", 1).Fields["version"]; v != "0.0.1" {
		t.Errorf("running version = %v, want the installed one", v)
	}
	s.run(s.known(vm.NewPod("guaranteed", "64Mi", "64Mi", "sleep"), 1, 0))
	limited := func(want bool) {
		t.Helper()
		s.until(fmt.Sprintf("pods are limited: %v", want), func() error {
			text := strings.TrimSpace(s.shell("cat /sys/fs/cgroup/kubepods.slice/memory.max"))
			if (text != "max") != want {
				return fmt.Errorf("memory.max = %s, want the limit", text)
			}
			return nil
		})
	}
	limited(true)

	s.dpkg("--install", s.bring("0.0.2"))
	if v := s.awaitLog("started", 2).Fields["version"]; v != "0.0.2" {
		t.Errorf("running version after the upgrade = %v, want the new one", v)
	}
	if kept := s.shell("cat /etc/default/jettison /etc/jettison/config.yaml"); !strings.Contains(kept, "--log-format=json") || !strings.Contains(kept, reserve) {
		t.Errorf("configuration after the upgrade = %s, want the administrator's", kept)
	}
	limited(true)

	s.shell("systemctl kill --signal=KILL jettison")
	s.awaitLog("started", 3)
	if state := s.shell("systemctl is-enabled jettison; systemctl is-active jettison; true"); state != "enabled\nactive\n" {
		t.Errorf("service state after the upgrade and a crash = %q", state)
	}
	if out, err := s.Shell(s.ctx, "/usr/bin/jettison restore"); err == nil || !strings.Contains(err.Error(), "an agent is running") {
		t.Errorf("restore while an agent runs = %s, %v, want an error", out, err)
	}

	s.shell("systemctl stop jettison && echo 51380224 > /sys/fs/cgroup/system.slice/memory.min && systemctl start jettison")
	s.awaitLog("started", 4)
	s.dpkg("--remove", "jettison")
	limited(false)
	if kept := s.shell("ls /var/lib/jettison /etc/jettison/config.yaml /etc/default/jettison"); !strings.Contains(kept, "state.json") {
		t.Errorf("configuration after a removal without purge = %s, want it kept", kept)
	}
	// The program is also installed outside the package, where it lists the settings to restore.
	if left := s.shell("/usr/local/bin/jettison restore"); !strings.HasPrefix(left, "0 limits of pods restored, 0 of ") {
		t.Errorf("the removal has left %s", left)
	}

	s.dpkg("--purge", "jettison")
	left := s.shell("for d in /etc /usr/bin /usr/lib /usr/share /var /run /sys/fs/cgroup; do find $d -xdev -iname '*jettison*'; done | grep -v ^/var/tmp/; true")
	if left != "" {
		t.Errorf("files left after the purge:\n%s", left)
	}
}

// A node with systemd and the shipped service. The self-test passes every step, and a leaker is
// evicted and its restart rejected during the hold-off. systemd reloads its units repeatedly all
// the while.
func TestASystemdNode(t *testing.T) {
	s := installed(t, "0.0.1", config(""))
	expectAllSteps(t, s.awaitLog("self-test finished", 1))
	for _, l := range must(s.ServiceLog(s.ctx)) {
		if level := l.Fields["level"]; level == "WARN" || level == "ERROR" {
			if !strings.HasPrefix(l.Msg, "memory.available hard threshold smaller") {
				t.Errorf("as the unit runs it, the agent has something to complain about: %v", l.Fields)
			}
		}
	}
	s.awaitLog("runtime events connected", 1)
	if _, err := s.Start(s.ctx, "/var/log/reloads.log", "/bin/sh", "-c", "while sleep 5; do systemctl daemon-reload && echo reloaded; done"); err != nil {
		t.Fatal(err)
	}
	s.until("systemd has read its units anew", func() error { return s.reads("/var/log/reloads.log", "reloaded") })
	victim := leakerBesideOthers(s.node)
	victim.Expected = vm.Any // it might start again
	line := s.awaitLog("evicted", 1)
	// Immediately: the runtime may report the pod's end only after the hold-off.
	if _, err := s.Run(s.ctx, victim.Object); err == nil || !strings.Contains(err.Error(), "jettison") {
		t.Errorf("start directly after the eviction = %v, want the gate's rejection", err)
	}
	s.dies(victim)
	s.expectMemoryAvailable()
	if line.Fields["victim"] != "default/leaker" {
		t.Errorf("evicted pod in the agent's log = %v, want the leaker", line.Fields["victim"])
	}
	s.awaitLog("evicted pod rejected", 1)
	if out := s.shell("dmesg | grep 'jettison: evict' || true"); !strings.Contains(out, "default/leaker") {
		t.Errorf("kernel log lines of the eviction = %q, want one", out)
	}
	for _, command := range []string{"jettison status; true", "jettison records", "journalctl -u jettison | grep evicted"} {
		out := s.shell(command)
		t.Logf("%s\n%s", command, out)
		if !strings.Contains(out, "default/leaker") {
			t.Errorf("output of %s does not name the evicted pod", command)
		}
	}
	s.until("jettison check finds nothing wrong", func() error { // the runtime may answer too late while it cleans up
		out, err := s.Shell(s.ctx, "jettison check")
		t.Logf("%s", out)
		return err
	})
}

// must returns the lines, or none if there was an error: for logs.
func must(lines []vm.LogLine, err error) []vm.LogLine {
	if err != nil {
		return nil
	}
	return lines
}

// The agent without `privileged`: its self-test passes every step, and it lacks only the kernel's
// log. Each kind of shortage and of garbage ends as with the base.
func TestLeastPrivilege(t *testing.T) {
	needsContainerd(t, "the overlay least-privilege mounts containerd's folder")
	t.Run("rungs", func(t *testing.T) {
		n := startNode(t)
		n.startAgent("")
		expectAllSteps(t, n.agentLogs("self-test finished", 1))
		for _, l := range n.agentLog() {
			level := l.Fields["level"]
			advice := strings.HasPrefix(l.Msg, "memory.available hard threshold smaller")
			if (level == "WARN" || level == "ERROR") && !advice && !strings.Contains(fmt.Sprint(l.Fields), "kmsg") {
				t.Errorf("agent logged a warning about more than /dev/kmsg: %v", l.Fields)
			}
		}
		out, err := n.agent.Exec(n.ctx, "/jettison", "check")
		if err != nil {
			t.Error(err)
		}
		t.Logf("%s", out)
	})
	for _, ladder := range []string{"cgroup.kill,cpu,mrelease", "pidfd,cpu,mrelease", "runtime"} {
		t.Run("ladder "+ladder, func(t *testing.T) {
			n := startNode(t)
			n.startAgent("", "--ladder="+ladder)
			began := time.Now()
			n.dies(leakerBesideOthers(n))
			n.expectMemoryAvailable()
			t.Logf("dead after %v", time.Since(began))
		})
	}
	for name, scenario := range map[string]func(*testing.T){
		"a leak":                       TestPromiseTheLeakerAloneIsEvicted,
		"shared memory is unmounted":   TestATmpfsHogIsEvicted,
		"a pod that resists":           TestPromiseAPodThatResistsGoesAsAWhole,
		"a disk, and files of others'": TestPromiseNodefsBytesComeBack,
		"images":                       TestPromiseADiskComesBackWithoutAnEviction,
		"dead containers":              TestAnAgentThatIsKilledInAPassFinishesIt,
		"logs":                         TestRotatedLogsLoseNoLine,
		"an evicted pod is kept out":   TestAnEvictedPodIsKeptOut,
		"limits of pods":               TestPodsAreLimitedAndProtected,
	} {
		t.Run(name, scenario)
	}
}
