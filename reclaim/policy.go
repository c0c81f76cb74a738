package reclaim

import (
	"fmt"
	"time"
)

// Policy is when what is removed.
type Policy struct {
	Container ContainerPolicy
	Image     ImagePolicy
}

// ContainerPolicy is about dead containers (kubelet pkg/kubelet/container/container_gc.go
// GCPolicy).
type ContainerPolicy struct {
	MinAge             time.Duration // since its creation
	MaxPerPodContainer int           // dead ones to keep for each name in a pod; below 0: all
	MaxContainers      int           // dead ones to keep in all; below 0: all
	// from when on one that was created and never started counts as dead
	CreatedMinAge time.Duration
}

// ImagePolicy is about unused images (kubelet pkg/kubelet/images/image_gc_manager.go
// ImageGCPolicy).
type ImagePolicy struct {
	HighThresholdPercent int           // of the file system in use: from here on images are removed
	LowThresholdPercent  int           // down to here
	MinAge               time.Duration // since it was first seen: before that it stays
	// since it was last used: after that it goes; 0: never for its age
	MaxAge time.Duration
}

// DefaultPolicy is the kubelet's.
func DefaultPolicy() Policy {
	return Policy{
		Container: ContainerPolicy{MaxPerPodContainer: 1, MaxContainers: -1,
			CreatedMinAge: 10 * time.Minute},
		Image: ImagePolicy{HighThresholdPercent: 85, LowThresholdPercent: 80,
			MinAge: 2 * time.Minute},
	}
}

// Validate says what is wrong with a policy for containers, in the kubelet's words where it has
// some.
func (p ContainerPolicy) Validate() error {
	switch {
	case p.MinAge < 0:
		return fmt.Errorf("invalid minimum garbage collection age: %v", p.MinAge)
	case p.CreatedMinAge < 0:
		return fmt.Errorf("invalid minimum age of created containers: %v", p.CreatedMinAge)
	}
	return nil
}

// Validate says what is wrong with a policy for images, in the kubelet's words where it has some
// (NewImageGCManager).
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
