package stats

import "time"

// InterfaceStats is one network interface, by rtnetlink's 64-bit counters.
type InterfaceStats struct {
	Name              string
	RxBytes, RxErrors uint64
	TxBytes, TxErrors uint64
}

// NetworkStats is what went through a pod's own network namespace. A pod on the host's network has
// none.
type NetworkStats struct {
	Time       time.Time
	Interfaces []InterfaceStats // by name; without lo
}

// Default is the interface that the kubelet reports as the pod's: eth0, else the first.
func (n NetworkStats) Default() (InterfaceStats, bool) {
	for _, i := range n.Interfaces {
		if i.Name == "eth0" {
			return i, true
		}
	}
	if len(n.Interfaces) > 0 {
		return n.Interfaces[0], true
	}
	return InterfaceStats{}, false
}
