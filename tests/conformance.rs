//! smoke
use gvmm::config::HostConfig;
use gvmm::driver::*;
use gvmm::units::*;
#[test]
fn smoke() {
    let d = open(None, &HostConfig::default()).unwrap();
    let o = Ordinal(0);
    let g = d.granularity(o, ByteSize(1)).unwrap();
    let r = d.reserve(o, ByteSize::mib(8), g).unwrap();
    let b = d.create(o, ByteSize::mib(2), CreateOptions::default()).unwrap();
    let b2 = d.create(o, ByteSize::mib(2), CreateOptions::default()).unwrap();
    let p = r.slice(ByteSize(0), ByteSize::mib(2)).unwrap();
    let p2 = r.slice(ByteSize::mib(4), ByteSize::mib(2)).unwrap();
    d.map(p, b).unwrap();
    d.map(p2, b2).unwrap();
    let rw = [Access { device: o, mode: AccessMode::READ_WRITE }];
    d.set_access(p, &rw).unwrap();
    d.set_access(p2, &rw).unwrap();
    let s = d.streams().create(o).unwrap();
    let src = vec![7u8; 300_000];
    let mut dst = vec![0u8; 300_000];
    let t = d.timeline_create(o).unwrap();
    let at = |p: *const u8| DevicePtr(p as u64);
    d.copy(o, s, &[CopySlice { dst: p.start(), src: at(src.as_ptr()), bytes: 300_000 }]).unwrap();
    d.copy(o, s, &[CopySlice { dst: p2.start(), src: p.start(), bytes: 300_000 }]).unwrap();
    d.copy(o, s, &[CopySlice { dst: at(dst.as_mut_ptr()), src: p2.start(), bytes: 300_000 }]).unwrap();
    d.timeline_write(s, t, 5).unwrap();
    d.timeline_wait(t, 5).unwrap();
    assert!(dst.iter().all(|&x| x == 7));
    d.copy(o, s, &[CopySlice { dst: DevicePtr(16), src: p.start(), bytes: 3 }]).unwrap();
    println!("{}", d.streams().synchronize(s).unwrap_err());
    d.timeline_destroy(t).unwrap();
    d.streams().destroy(s).unwrap();
    for n in [256usize, 1] {
        let i = std::time::Instant::now();
        for _ in 0..2000 {
            d.unmap(p).unwrap();
            d.map(p, b).unwrap();
            d.set_access(p, &rw).unwrap();
        }
        println!("remap {n} {:?}", i.elapsed() / 2000);
    }
    d.unmap(p).unwrap();
    d.unmap(p2).unwrap();
    d.free(r).unwrap();
    d.release(b).unwrap();
    d.release(b2).unwrap();
}
