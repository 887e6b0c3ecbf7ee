//! Compares our tables with Intel's own headers, by a C++ compiler, where they are installed (Debian: `libze-dev`): what
//! each function takes, the structs' layouts, the numbers. No crate has committed bindings of the virtual-memory
//! calls. What a header is too old for is named; the rest must agree.

use super::api::{self, SIGNATURES};
use super::layout::*;
use std::fmt::Write as _;
use std::io::Write as _;
use std::mem::offset_of;
use std::process::{Command, Stdio};

const HEADERS: [&str; 2] = ["/usr/include/level_zero/ze_api.h", "/usr/include/level_zero/zes_api.h"];

/// True where a function takes what the list says.
const PRELUDE: &str = "#include <cstddef>
#include <initializer_list>
#include <level_zero/ze_api.h>
#include <level_zero/zes_api.h>
template <class R, class... A> constexpr bool takes(R (*)(A...), std::initializer_list<unsigned long> list) {
    unsigned long own[] = {sizeof(A)..., 0}, at = 0;
    bool same = sizeof(R) == 4 && sizeof...(A) == list.size();
    for (unsigned long size : list) same = same && at < sizeof...(A) && own[at++] == size;
    return same;
}
";

/// The program that the compiler checks, and what the header lacks.
struct Program {
    text: String,
    header: String,
    lacking: Vec<String>,
    compared: usize,
}

impl Program {
    fn new(header: String) -> Self {
        Self { text: PRELUDE.to_owned(), header, lacking: Vec::new(), compared: 0 }
    }

    /// True where the header has the word; else it is noted as missing.
    fn knows(&mut self, word: &str) -> bool {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let found = self.header.split(|c| !is_word(c)).any(|w| w == word);
        if !found {
            self.lacking.push(word.to_owned());
        }
        found
    }

    fn check(&mut self, condition: &str) {
        self.compared += 1;
        writeln!(self.text, "static_assert({condition}, \"\");").expect("a text takes it");
    }

    fn function(&mut self, name: &str, sizes: &[usize]) {
        if self.knows(name) {
            let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
            self.check(&format!("takes(&{name}, {{{}}})", sizes.join(", ")));
        }
    }

    fn number(&mut self, name: &str, value: u64) {
        if self.knows(name) {
            self.check(&format!("{name} == {value}ull"));
        }
    }

    fn layout(&mut self, name: &str, size: usize, stype: Option<(&str, u32)>, fields: &[(&str, usize)]) {
        if !self.knows(name) {
            return;
        }
        self.check(&format!("sizeof({name}) == {size}"));
        for (field, at) in fields {
            self.check(&format!("offsetof({name}, {field}) == {at}"));
        }
        if let Some((number, value)) = stype {
            self.number(number, u64::from(value));
        }
    }

    /// What the compiler says to it: nothing where all of it holds.
    fn complaints(&self) -> String {
        let mut compiler = Command::new("c++")
            .args(["-std=c++17", "-fsyntax-only", "-x", "c++", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a C++ compiler");
        let mut input = compiler.stdin.take().expect("piped");
        input.write_all(self.text.as_bytes()).expect("read");
        drop(input);
        let output = compiler.wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.success(), text.is_empty(), "{text}");
        text
    }
}

/// A struct of ours and the header's, with its type's number and its fields.
macro_rules! layouts {
    ($program:ident: $($ours:ident $theirs:ident $number:ident { $($field:ident $name:ident,)* })*) => { $(
        $program.layout(
            stringify!($theirs),
            size_of::<$ours>(),
            Some((stringify!($number), $ours::blank().stype)),
            &[("pNext", offset_of!($ours, next)), $((stringify!($name), offset_of!($ours, $field))),*],
        );
    )* };
}

fn device_structs(program: &mut Program) {
    layouts! { program:
        InitDesc ze_init_driver_type_desc_t ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC { flags flags, }
        DeviceProperties ze_device_properties_t ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES {
            kind type, vendor vendorId, number deviceId, flags flags, part subdeviceId, core_mhz coreClockRate,
            largest maxMemAllocSize, contexts maxHardwareContexts, priorities maxCommandQueuePriority,
            threads numThreadsPerEU, simd physicalEUSimdWidth, units numEUsPerSubslice,
            subslices numSubslicesPerSlice, slices numSlices, timer timerResolution,
            timestamp_bits timestampValidBits, kernel_timestamp_bits kernelTimestampValidBits, uuid uuid, name name,
        }
        MemoryProperties ze_device_memory_properties_t ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES {
            flags flags, clock_mhz maxClockRate, bus_bits maxBusWidth, total totalSize, name name,
        }
        Bandwidth ze_device_memory_ext_properties_t ZE_STRUCTURE_TYPE_DEVICE_MEMORY_EXT_PROPERTIES {
            kind type, physical physicalSize, read readBandwidth, write writeBandwidth, unit bandwidthUnit,
        }
        QueueGroup ze_command_queue_group_properties_t ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES {
            flags flags, pattern maxMemoryFillPatternSize, queues numQueues,
        }
        ExternalProperties ze_device_external_memory_properties_t
            ZE_STRUCTURE_TYPE_DEVICE_EXTERNAL_MEMORY_PROPERTIES {
            imports memoryAllocationImportTypes, exports memoryAllocationExportTypes, image_imports imageImportTypes,
            image_exports imageExportTypes,
        }
        ContextDesc ze_context_desc_t ZE_STRUCTURE_TYPE_CONTEXT_DESC { flags flags, }
        CommandQueueDesc ze_command_queue_desc_t ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC {
            group ordinal, index index, flags flags, mode mode, priority priority,
        }
        CommandListDesc ze_command_list_desc_t ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC {
            group commandQueueGroupOrdinal, flags flags,
        }
    }
}

fn memory_structs(program: &mut Program) {
    layouts! { program:
        EventPoolDesc ze_event_pool_desc_t ZE_STRUCTURE_TYPE_EVENT_POOL_DESC { flags flags, count count, }
        EventDesc ze_event_desc_t ZE_STRUCTURE_TYPE_EVENT_DESC { index index, signal signal, wait wait, }
        DeviceAllocDesc ze_device_mem_alloc_desc_t ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC {
            flags flags, ordinal ordinal,
        }
        HostAllocDesc ze_host_mem_alloc_desc_t ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC { flags flags, }
        RelaxedLimits ze_relaxed_allocation_limits_exp_desc_t
            ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC { flags flags, }
        AllocationProperties ze_memory_allocation_properties_t ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES {
            kind type, id id, page pageSize,
        }
        PhysicalDesc ze_physical_mem_desc_t ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC { flags flags, bytes size, }
        PhysicalProperties ze_physical_mem_properties_t ZE_STRUCTURE_TYPE_PHYSICAL_MEM_PROPERTIES {
            id id, bytes size,
        }
        ExportDesc ze_external_memory_export_desc_t ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC { flags flags, }
        ImportFd ze_external_memory_import_fd_t ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD {
            flags flags, descriptor fd,
        }
        ExportFd ze_external_memory_export_fd_t ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD {
            flags flags, descriptor fd,
        }
        SysmanProperties zes_device_properties_t ZES_STRUCTURE_TYPE_DEVICE_PROPERTIES {
            core core, parts numSubdevices, texts serialNumber,
        }
        ModuleProperties zes_mem_properties_t ZES_STRUCTURE_TYPE_MEM_PROPERTIES {
            kind type, on_part onSubdevice, part subdeviceId, location location, physical physicalSize,
            bus_bits busWidth, channels numChannels,
        }
        MemoryState zes_mem_state_t ZES_STRUCTURE_TYPE_MEM_STATE { health health, free free, total size, }
    }
    program.layout(
        "ze_driver_extension_properties_t",
        size_of::<ExtensionProperties>(),
        None,
        &[
            ("name", offset_of!(ExtensionProperties, name)),
            ("version", offset_of!(ExtensionProperties, version)),
        ],
    );
    program.layout("ze_device_uuid_t", size_of::<Uuid>(), None, &[]);
    program.layout("zes_uuid_t", size_of::<Uuid>(), None, &[]);
}

fn numbers(program: &mut Program) {
    let results = [
        ("ZE_RESULT_SUCCESS", api::SUCCESS),
        ("ZE_RESULT_NOT_READY", api::NOT_READY),
        ("ZE_RESULT_ERROR_UNINITIALIZED", api::UNINITIALIZED),
        ("ZE_RESULT_ERROR_UNSUPPORTED_FEATURE", api::UNSUPPORTED),
    ];
    let flags = [
        ("ZE_MEMORY_ACCESS_ATTRIBUTE_NONE", u64::from(super::NO_ACCESS)),
        ("ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE", u64::from(super::READ_WRITE)),
        ("ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY", u64::from(super::READ_ONLY)),
    ];
    for (name, value) in flags {
        program.number(name, value);
    }
    let rows = super::error::ROWS.iter().map(|row| (row.1, row.0));
    for (name, value) in results.into_iter().chain(rows) {
        program.number(name, u64::from(value));
    }
}

fn header() -> Option<String> {
    let texts = HEADERS.map(|path| std::fs::read_to_string(path).ok());
    let [Some(core), Some(sysman)] = texts else { return None };
    Some(core + &sysman)
}

#[test]
fn tables_are_those_of_the_header() {
    let Some(header) = header() else {
        println!("skipped: Intel's headers are not installed (Debian: libze-dev)");
        assert!(std::env::var_os("GVMM_NO_SKIP").is_none_or(|v| v != "1"), "GVMM_NO_SKIP=1 and skipped");
        return;
    };
    let mut program = Program::new(header);
    for (name, sizes) in SIGNATURES {
        program.function(name.to_str().expect("ASCII"), sizes);
    }
    device_structs(&mut program);
    memory_structs(&mut program);
    numbers(&mut program);
    assert_eq!(program.complaints(), "");
    println!("{} facts compared; the header is too old for {:?}", program.compared, program.lacking);
    // Version 1.4 of the header has this much.
    assert!(program.compared >= 180, "{}", program.compared);
    // A difference is seen.
    for wrong in
        ["takes(&zeInit, {8})", "takes(&zeVirtualMemFree, {8, 8})", "sizeof(ze_context_desc_t) == 16"]
    {
        let mut wrongly = Program::new(String::new());
        wrongly.check(wrong);
        assert!(wrongly.complaints().contains("static assertion failed"), "{wrong}");
    }
}
