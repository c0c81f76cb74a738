package reclaim

import (
	"fmt"
	"time"
)

// Policy holds the rules for removal.
type Policy struct {
	Container ContainerPolicy
	Image     ImagePolicy
}

// ContainerPolicy holds the rules for dead containers (kubelet
// pkg/kubelet/container/container_gc.go GCPolicy).
type ContainerPolicy struct {
	MinAge             time.Duration // since the creation
	MaxPerPodContainer int           // dead containers to keep for each name in a pod; below 0: all
	MaxContainers      int           // dead containers to keep in total; below 0: all
	// age at which a created, never started container counts as dead
	CreatedMinAge time.Duration
}

// ImagePolicy holds the rules for unused images (kubelet pkg/kubelet/images/image_gc_manager.go
// ImageGCPolicy).
type ImagePolicy struct {
	HighThresholdPercent int           // usage of the file system at which removal begins
	LowThresholdPercent  int           // usage at which removal ends
	MinAge               time.Duration // since the first detection; younger images stay
	// time since the last use after which an image is removed; 0: unlimited
	MaxAge time.Duration
}

// DefaultPolicy returns the kubelet's defaults.
func DefaultPolicy() Policy {
	return Policy{
		Container: ContainerPolicy{MaxPerPodContainer: 1, MaxContainers: -1,
			CreatedMinAge: 10 * time.Minute},
		Image: ImagePolicy{HighThresholdPercent: 85, LowThresholdPercent: 80,
			MinAge: 2 * time.Minute},
	}
}

// Validate returns an error for an invalid policy, with the kubelet's text if the kubelet makes the
// same check.
func (p ContainerPolicy) Validate() error {
	switch {
	case p.MinAge < 0:
		return fmt.Errorf("invalid minimum garbage collection age: %v", p.MinAge)
	case p.CreatedMinAge < 0:
		return fmt.Errorf("invalid minimum age of created containers: %v", p.CreatedMinAge)
	}
	return nil
}

// Validate returns an error for an invalid policy, with the kubelet's text if the kubelet makes the
// same check (NewImageGCManager).
func (p ImagePolicy) Validate() error {
	switch {
	case p.HighThresholdPercent < 0 || p.HighThresholdPercent > 100:
		return fmt.Errorf("invalid HighThresholdPercent %d, must be in range [0-100]",
			p.HighThresholdPercent)
	case p.LowThresholdPercent < 0 || p.LowThresholdPercent > 100:
		return fmt.Errorf("invalid LowThresholdPercent %d, must be in range [0-100]",
			p.LowThresholdPercent)
	case p.LowThresholdPercent > p.HighThresholdPercent:
		return fmt.Errorf("LowThresholdPercent %d can not be higher than HighThresholdPercent %d",
			p.LowThresholdPercent, p.HighThresholdPercent)
	case p.MinAge < 0:
		return fmt.Errorf("invalid minimum image age: %v", p.MinAge)
	case p.MaxAge < 0:
		return fmt.Errorf("invalid maximum image age: %v", p.MaxAge)
	}
	return nil
}
