package config

import (
	"testing"

	"jettison/admit"
)

// Reservations have the kubelet's grammar. A value with which a kubelet does not start is an error
// in both kinds of files.
func TestReserved(t *testing.T) {
	for _, c := range []struct {
		text         string
		kube, system string // memory
		factor       float64
		err          string
	}{
		{"", "0", "0", 0, ""},
		{"kubeReserved: {cpu: 100m, memory: 1Gi, ephemeral-storage: 1Gi, pid: \"1000\"}\nsystemReserved: {memory: 500Mi}\n", "1Gi", "500Mi", 0, ""},
		{"kubeReserved: {}\nsystemReserved: null\nmemoryThrottlingFactor: null\n", "0", "0", 0, ""},
		{"kubeReserved: {memory: 1000000}\nmemoryThrottlingFactor: 1\n", "1M", "0", 1, ""},
		{"kubeReserved: {hugepages-2Mi: 1Gi}\n", "", "", 0,
			`3: kubeReserved: hugepages-2Mi: cannot reserve "hugepages-2Mi" resource: want cpu, memory, ephemeral-storage or pid`},
		{"systemReserved:\n  cpu: 1\n  memory: -1Gi\n", "", "", 0,
			`5: systemReserved: memory: resource quantity for "memory" cannot be negative: -1Gi`},
		{"systemReserved: {memory: ten}\n", "", "", 0,
			`3: systemReserved: memory: failed to parse quantity "ten" for "memory" resource: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`},
		{"systemReserved: {memory: 1e99990000}\n", "", "", 0,
			`3: systemReserved: memory: failed to parse quantity "1e99990000" for "memory" resource: the exponent is not between -18 and 18`},
		{"systemReserved: [memory]\n", "", "", 0, "3: systemReserved: want a mapping, got a list"},
		{"memoryThrottlingFactor: 0\n", "0", "0", 0, ""},
		{"memoryThrottlingFactor: -0.1\n", "", "", 0,
			"3: memoryThrottlingFactor: invalid configuration: memoryThrottlingFactor -0.1 must be greater than 0 and less than or equal to 1.0"},
		{"memoryThrottlingFactor: 1.1\n", "", "", 0,
			"3: memoryThrottlingFactor: invalid configuration: memoryThrottlingFactor 1.1 must be greater than 0 and less than or equal to 1.0"},
		{"memoryThrottlingFactor: .nan\n", "", "", 0,
			"3: memoryThrottlingFactor: invalid configuration: memoryThrottlingFactor NaN must be greater than 0 and less than or equal to 1.0"},
		{"memoryThrottlingFactor: most\n", "", "", 0, `3: memoryThrottlingFactor: want a number, got "most"`},
	} {
		for _, kind := range []string{own, kubelet} {
			l, err := Parse([]byte(kind + c.text))
			if err != nil || c.err != "" {
				if err == nil || err.Error() != c.err {
					t.Errorf("error of %q:\n got %v\nwant %s", c.text, err, c.err)
				}
				continue
			}
			kube, system := l.Reserved.Kube.Memory(), l.Reserved.System.Memory()
			if kube.String() != c.kube || system.String() != c.system || l.MemoryThrottlingFactor != c.factor {
				t.Errorf("reservations of %q = kube %v, system %v, factor %v", c.text, kube, system, l.MemoryThrottlingFactor)
			}
		}
	}
	c, err := parseFlags([]string{"--kube-reserved=cpu=100m,memory=1Gi", "--system_reserved", "memory=500Mi"}, "/")
	kube, system := valueOf(c.fields, "kubeReserved"), valueOf(c.fields, "systemReserved")
	if err != nil || kube == nil || system == nil || valueOf(kube, "memory").Value != "1Gi" || valueOf(system, "memory").Value != "500Mi" {
		t.Errorf("reservations of a kubelet's flags = kube %v, system %v, error %v", kube, system, err)
	}
	l, err := Parse([]byte(own + "kubeReserved: {pid: 100}\n"))
	if pid := l.Reserved.Kube[admit.ResourcePIDs]; err != nil || pid.Value() != 100 {
		t.Errorf("reservation of pid = %v, error %v", pid, err)
	}
}

// Reserved cpu is rounded to a thousandth of a core. The first three are the kubelet's
// TestParseResourceList.
func TestReservedCPUIsRounded(t *testing.T) {
	for text, want := range map[string]string{
		"200m": "200m", "200.5m": "201m", "200.4m": "200m", "0.0004": "0", "1500001u": "1500m", "1": "1", "200499999n": "201m",
		"8E": "8E",
	} {
		for _, kind := range []string{own, kubelet} {
			l, err := Parse([]byte(kind + "kubeReserved: {cpu: " + text + "}\nsystemReserved: {cpu: " + text + "}\n"))
			kube, system := l.Reserved.Kube.Cpu(), l.Reserved.System.Cpu()
			if err != nil || kube.String() != want || system.String() != want {
				t.Errorf("cpu reservation %s = kube %s, system %s, error %v, want %s", text, kube, system, err, want)
			}
		}
	}
}

// Limits are written only if the agent's file enables them: an upgrade must not start to write, and
// a kubelet's file cannot enable it.
func TestLimitsNeedAgentFile(t *testing.T) {
	const both = "writeAllocatable: true\nmemoryQoS: true\n"
	for text, want := range map[string]bool{own: false, kubelet: false, own + both: true, kubelet + both: false} {
		l, err := Parse([]byte(text))
		if err != nil || l.WriteAllocatable != want || l.MemoryQoS != want {
			t.Errorf("%q: writeAllocatable %v, memoryQoS %v, error %v, want false", text, l.WriteAllocatable, l.MemoryQoS, err)
		}
	}
}

// The cgroup above all pods is limited to node allocatable if pods are enforced, as by default,
// else to the whole capacity.
func TestEnforcesPods(t *testing.T) {
	for text, want := range map[string]bool{
		"": true, "enforceNodeAllocatable: [pods, system-reserved]\n": true, "enforceNodeAllocatable: []\n": false,
		"enforceNodeAllocatable: [none]\n": false,
	} {
		if l, err := Parse([]byte(own + text)); err != nil || l.EnforcesPods() != want {
			t.Errorf("EnforcesPods of %q is wrong, error %v", text, err)
		}
	}
}
