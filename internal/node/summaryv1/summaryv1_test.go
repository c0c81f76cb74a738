package summaryv1

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"jettison/stats"
)

func known(v uint64) stats.Opt[uint64] { return stats.Some(v) }

// An absent value is absent in JSON, not 0; a value of 0 is present.
func TestAbsentValues(t *testing.T) {
	empty := stats.Summary{Pods: []stats.PodStats{{PodRef: stats.PodReference{UID: "u"}}}}
	text, err := json.Marshal(From(&empty, "node"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Bytes", "maxpid", "curproc", "process_count", "ephemeral-storage", "network", "swap", "usageCoreNanoSeconds", "psi", "inodes", "fs\"", "imageFs", "systemContainers"} {
		if strings.Contains(string(text), name) {
			t.Errorf("JSON of an empty Summary contains %q: %s", name, text)
		}
	}
	zero := stats.Summary{Node: stats.NodeStats{
		Memory: stats.NodeMemoryStats{CapacityBytes: known(100), WorkingSetBytes: known(100), UsageBytes: known(0)},
		Swap:   stats.NodeSwapStats{TotalBytes: known(0), FreeBytes: known(0)},
	}}
	if text, err = json.Marshal(From(&zero, "node")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"availableBytes":0`, `"usageBytes":0`, `"swapUsageBytes":0`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("JSON does not contain %s: %s", want, text)
		}
	}
}

// Each value is in its field of the kubelet's API, in its unit.
func TestFieldsAndUnits(t *testing.T) {
	at := time.Unix(1000, 0).UTC()
	s := stats.Summary{
		Node: stats.NodeStats{
			Memory:      stats.NodeMemoryStats{Time: at, CapacityBytes: known(1000), WorkingSetBytes: known(300), KernelAvailableBytes: known(50)},
			Allocatable: stats.AllocatableMemoryStats{Time: at, LimitBytes: known(800), WorkingSetBytes: known(900)},
			Pressure:    stats.NodePressure{Memory: stats.Pressure{Stats: stats.Some(stats.PSIStats{Some: stats.PSIData{Total: 5 * time.Microsecond, Avg10: 1.5}})}},
			PIDs:        stats.NodePIDStats{Max: known(1000), Current: known(80)},
			Fs:          stats.Some(stats.FsStats{AvailableBytes: known(7), CapacityBytes: known(9)}),
			ImageFs:     stats.Some(stats.FsStats{AvailableBytes: known(70), CapacityBytes: known(90)}),
			ContainerFs: stats.Some(stats.FsStats{AvailableBytes: known(700), CapacityBytes: known(900)}),
			Swap:        stats.NodeSwapStats{TotalBytes: known(100), FreeBytes: known(30)},
		},
		Pods: []stats.PodStats{{
			PodRef: stats.PodReference{Name: "web", Namespace: "default", UID: "u"},
			Memory: stats.PodMemoryStats{Time: at, WorkingSetBytes: known(30), LimitBytes: known(100), AnonBytes: known(20)},
			CPU:    stats.CPUStats{Time: at, Usage: stats.Some(3 * time.Second)}, Processes: known(3),
			Containers: []stats.ContainerStats{{Name: "main", Processes: known(2),
				Memory: stats.ContainerMemoryStats{Time: at, SwapBytes: known(3), SwapLimitBytes: known(10)}, Rootfs: stats.Some(stats.FsUsage{UsedBytes: 4}), Logs: stats.Some(stats.FsUsage{UsedBytes: 3})}, {ID: "unnamed", Processes: known(0)}},
			EphemeralStorage: stats.PodStorageStats{UsedBytes: known(11), InodesUsed: known(2), Volumes: []stats.VolumeStats{
				{Name: "disk", FsUsage: stats.FsUsage{UsedBytes: 5}}, {Name: "memory", Memory: true, FsUsage: stats.FsUsage{UsedBytes: 6}}}},
			Network: stats.Some(stats.NetworkStats{Interfaces: []stats.InterfaceStats{{Name: "aux", RxBytes: 1}, {Name: "eth0", RxBytes: 2}}}),
		}},
	}
	v := From(&s, "n1")
	n, p := v.Node, v.Pods[0]
	for what, ok := range map[string]bool{
		"available by the kubelet's formula":      *n.Memory.AvailableBytes == 700,
		"pressure in nanoseconds":                 n.Memory.PSI.Some.Total == 5000 && n.Memory.PSI.Some.Avg10 == 1.5,
		"pods above their limit have 0 available": n.SystemContainers[0].Name == "pods" && *n.SystemContainers[0].Memory.AvailableBytes == 0,
		"tasks":                                 *n.Rlimit.MaxPID == 1000 && *n.Rlimit.NumOfRunningProcesses == 80,
		"name":                                  n.NodeName == "n1" && p.PodRef.Name == "web",
		"available of a limit":                  *p.Memory.AvailableBytes == 70 && *p.Memory.RSSBytes == 20,
		"CPU in nanoseconds":                    *p.CPU.UsageCoreNanoSeconds == 3e9,
		"swap left of a limit":                  *p.Containers[0].Swap.SwapAvailableBytes == 7 && *p.Containers[0].Swap.SwapUsageBytes == 3,
		"processes without the sandbox's":       *p.ProcessStats.ProcessCount == 2,
		"the pod's interface is eth0":           p.Network.Name == "eth0" && *p.Network.RxBytes == 2 && len(p.Network.Interfaces) == 2,
		"disk of the node":                      *p.EphemeralStorage.UsedBytes == 11 && *p.EphemeralStorage.AvailableBytes == 7,
		"a volume in memory is not on the disk": p.VolumeStats[0].CapacityBytes != nil && p.VolumeStats[1].CapacityBytes == nil && *p.VolumeStats[1].UsedBytes == 6,
		"swap":                                  *n.Swap.SwapUsageBytes == 70 && *n.Swap.SwapAvailableBytes == 30,
		"stores":                                *n.Runtime.ImageFs.AvailableBytes == 70 && *n.Runtime.ContainerFs.AvailableBytes == 700,
		"a writable layer is where containers are": *p.Containers[0].Rootfs.AvailableBytes == 700 && *p.Containers[0].Rootfs.UsedBytes == 4,
		"logs are on the node's":                   *p.Containers[0].Logs.AvailableBytes == 7 && *p.Containers[0].Logs.UsedBytes == 3,
		"a container without a name":               p.Containers[0].Name == "main" && p.Containers[1].Name == "unnamed",
	} {
		if !ok {
			t.Errorf("values of the field differ, %s: %+v %+v", what, n, p)
		}
	}
}
