package limits

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/admit"
	"jettison/stats"
)

// Capacity returns the node's capacity: cpu, memory, ephemeral-storage (the file system of its root
// directory), pid, and huge pages by size, in the formats of the kubelet
// (pkg/kubelet/cadvisor/util.go CapacityFromMachineInfo, EphemeralStorageCapacityFromFsInfo,
// v1.37.2). Unobserved resources are absent. The number of pods is a setting, not a capacity of the
// kernel.
func Capacity(node *stats.NodeStats, cores int, hugePages map[uint64]uint64) v1.ResourceList {
	out := v1.ResourceList{}
	if cores > 0 {
		out[v1.ResourceCPU] = *resource.NewMilliQuantity(int64(cores)*1000, resource.DecimalSI)
	}
	set := func(name v1.ResourceName, v stats.Opt[uint64], format resource.Format) {
		if v.OK {
			out[name] = *resource.NewQuantity(int64(min(v.V, math.MaxInt64)), format)
		}
	}
	set(v1.ResourceMemory, node.Memory.CapacityBytes, resource.BinarySI)
	set(admit.ResourcePIDs, node.PIDs.Max, resource.DecimalSI)
	if node.Fs.OK {
		set(v1.ResourceEphemeralStorage, node.Fs.V.CapacityBytes, resource.DecimalSI)
	}
	for size, pages := range hugePages {
		name := v1.ResourceName(v1.ResourceHugePagesPrefix + resource.NewQuantity(int64(size),
			resource.BinarySI).String())
		set(name, stats.Some(size*pages), resource.BinarySI)
	}
	return out
}

// maxPageSize bounds plausible page sizes, in bytes; arm64 has pages of 16 GiB.
const maxPageSize = 1 << 40

// HugePages returns the number of huge pages by size in bytes, from hugepages-2048kB/nr_hugepages
// below kernel/mm/hugepages of /sys. A size with 0 pages is included: the kubelet also has it in
// the node's capacity, and rejects a pod that requests some. Unreadable sizes are absent.
func HugePages(sysMount string) map[uint64]uint64 {
	dir := filepath.Join(sysMount, "kernel/mm/hugepages")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	out := map[uint64]uint64{}
	for _, e := range entries {
		kib, ok := strings.CutPrefix(e.Name(), "hugepages-")
		size, err := strconv.ParseUint(strings.TrimSuffix(kib, "kB"), 10, 64)
		if !ok || err != nil || size == 0 || size > maxPageSize>>10 {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name(), "nr_hugepages"))
		if err != nil {
			continue
		}
		if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil &&
			n < math.MaxInt64/(size<<10) {
			out[size<<10] = n
		}
	}
	return out
}
