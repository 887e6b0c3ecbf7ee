//! Access lists: windows and shadows can be used by the devices that the binding names, and by no other.

mod rebind_support;

use gvmm::config::HostConfig;
use gvmm::driver::{Access, AccessMode, CopySlice, Driver, Ordinal};
use gvmm::rebind::{Slot, Threshold};
use gvmm::units::{ByteSize, DevicePtr};
use gvmm::vm::{Device, Owner};
use rebind_support::{Given, World, addresses, begin, fill, holds};
use std::sync::Arc;

const MIB2: u64 = 2 << 20;

#[test]
fn windows_and_shadows_have_the_bindings_access() {
    let world = World::with(HostConfig { devices: 2, memory: 1 << 40, ..HostConfig::default() });
    let (big, small) = (world.home(MIB2), world.home(MIB2));
    let slots = vec![Slot::new(ByteSize(MIB2)), Slot::new(ByteSize(512))];
    let list = |mode: AccessMode| {
        vec![Access { device: Ordinal(0), mode: AccessMode::READ_WRITE }, Access { device: Ordinal(1), mode }]
    };
    let own = world.binding(slots.clone(), Threshold(4096));
    let shared = world.binding_for(slots, Threshold(4096), list(AccessMode::READ));
    let given = Given::of(&[&big, &small]);
    let peer = Device::open(Arc::clone(&world.fault) as Arc<dyn Driver>, Ordinal(1)).expect("a device");
    let target = peer.allocate(ByteSize(MIB2), &[], Owner::Caller).expect("memory");
    let stream = world.fault.streams().create(Ordinal(1)).expect("a stream");
    let copy = |from: DevicePtr| {
        let slice = CopySlice { dst: target.address(), src: from, bytes: 512 };
        peer.shadow_copy(stream, &[slice]).and_then(|_| world.fault.streams().synchronize(stream))
    };
    for (address, seed) in [(&big, 5), (&small, 6)] {
        fill(address.address(), ByteSize(512), seed);
    }
    begin(&shared, world.stream, &given).expect("begin");
    world.synchronize();
    for (address, seed) in addresses(&shared, 2).into_iter().zip([5, 6]) {
        copy(address).expect("the peer may read");
        assert!(holds(target.address(), ByteSize(512), seed));
    }
    shared.end().expect("end");
    begin(&own, world.stream, &given).expect("begin");
    own.end().expect("end");
    for address in addresses(&own, 2) {
        copy(address).expect_err("the peer was not named");
    }
}
