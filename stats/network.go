package stats

import "time"

// InterfaceStats describes one network interface by rtnetlink's 64-bit counters.
type InterfaceStats struct {
	Name              string
	RxBytes, RxErrors uint64
	TxBytes, TxErrors uint64
}

// NetworkStats is the traffic of a pod's own network namespace. It is absent for a pod on the
// host's network.
type NetworkStats struct {
	Time       time.Time
	Interfaces []InterfaceStats // by name; without lo
}

// Default returns the interface that the kubelet reports as the pod's: eth0, else the first.
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
