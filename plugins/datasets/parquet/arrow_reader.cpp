/*
 * arrow_reader.cpp - see arrow_reader.h. Memory is bounded by a row group's column chunks or by a record batch, which
 * is how such files are written; conversion to nodes happens in arrow_rows_read.
 */
#include "arrow_reader.h"
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <cerrno>
#include <cstring>
#include <new>
#include <parquet/arrow/reader.h>
#include <string>
#include <sys/stat.h>

namespace
{

constexpr int64_t kRows = 1000; // of a range

// A status of Arrow as one of nrl's, with the path in front.
nrl_status fail(const char *path, const arrow::Status &st)
{
    std::string text = st.message();
    text.resize(std::min(text.size(), text.find('\n')));
    nrl_status code = st.IsOutOfMemory() ? NRL_ERR_MEMORY : st.IsIOError() && errno ? NRL_ERR_IO : NRL_ERR_DATA;
    return nrl_fail(code, "%s: %s", path, text.c_str());
}

// Runs f, a function that returns an arrow::Status; exceptions become errors.
template <typename F> nrl_status guarded(const char *path, F f)
{
    try {
        errno = 0;
        arrow::Status st = f();
        return st.ok() ? NRL_OK : fail(path, st);
    } catch (const std::bad_alloc &) {
        return nrl_fail(NRL_ERR_MEMORY, "%s: out of memory", path);
    } catch (const std::exception &e) {
        return nrl_fail(NRL_ERR_DATA, "%s: %s", path, e.what());
    }
}

// ---- types ----

// NULL, or the part of the type that has neither a text nor a number.
const arrow::DataType *unreadable(const arrow::DataType &type)
{
    switch (type.id()) {
    case arrow::Type::BINARY:
    case arrow::Type::LARGE_BINARY:
    case arrow::Type::FIXED_SIZE_BINARY:
    case arrow::Type::BINARY_VIEW:
    case arrow::Type::SPARSE_UNION:
    case arrow::Type::DENSE_UNION:
    case arrow::Type::LIST_VIEW:
    case arrow::Type::LARGE_LIST_VIEW:
    case arrow::Type::RUN_END_ENCODED:
        return &type;
    case arrow::Type::EXTENSION:
        return unreadable(*static_cast<const arrow::ExtensionType &>(type).storage_type());
    case arrow::Type::DICTIONARY:
        return unreadable(*static_cast<const arrow::DictionaryType &>(type).value_type());
    default:
        break;
    }
    for (const auto &field : type.fields())
        if (const arrow::DataType *found = unreadable(*field->type())) return found;
    return nullptr;
}

// ---- values ----

nrl_node *value_node(const arrow::Array &array, int64_t i, nrl_arena *memory);

nrl_node *list_node(const arrow::Array &values, int64_t begin, int64_t end, nrl_arena *memory)
{
    nrl_node *list = nrl_node_new(memory, NRL_NODE_LIST);
    for (int64_t k = begin; k < end; k++)
        nrl_node_append(memory, list, value_node(values, k, memory));
    return list;
}

template <typename T> nrl_node *list_of(const arrow::Array &array, int64_t i, nrl_arena *memory)
{
    const auto &a = static_cast<const T &>(array);
    return list_node(*a.values(), a.value_offset(i), a.value_offset(i) + a.value_length(i), memory);
}

template <typename T> nrl_node *int_node(const arrow::Array &array, int64_t i, nrl_arena *memory)
{
    return nrl_node_new_int(memory, static_cast<int64_t>(static_cast<const T &>(array).Value(i)));
}

template <typename T> nrl_node *text_node(const arrow::Array &array, int64_t i, nrl_arena *memory)
{
    const auto text = static_cast<const T &>(array).GetView(i);
    return nrl_node_new_string(memory, text.data(), text.size());
}

// All structs of a column have the same fields. Those that a row does not have are null, and templates would print
// them.
nrl_node *struct_node(const arrow::StructArray &a, int64_t i, nrl_arena *memory)
{
    nrl_node *map = nrl_node_new(memory, NRL_NODE_MAP);
    for (int k = 0; k < a.num_fields(); k++)
        if (!a.field(k)->IsNull(i))
            nrl_node_put(memory, map, a.struct_type()->field(k)->name().c_str(), value_node(*a.field(k), i, memory));
    return map;
}

// A list of {key, value}, as datasets writes it to JSON.
nrl_node *map_node(const arrow::MapArray &a, int64_t i, nrl_arena *memory)
{
    nrl_node *list = nrl_node_new(memory, NRL_NODE_LIST);
    for (int64_t k = a.value_offset(i); k < a.value_offset(i) + a.value_length(i); k++) {
        nrl_node *pair = nrl_node_new(memory, NRL_NODE_MAP);
        nrl_node_put(memory, pair, "key", value_node(*a.keys(), k, memory));
        nrl_node_put(memory, pair, "value", value_node(*a.items(), k, memory));
        nrl_node_append(memory, list, pair);
    }
    return list;
}

nrl_node *value_node(const arrow::Array &array, int64_t i, nrl_arena *memory)
{
    if (array.IsNull(i)) return nrl_node_new(memory, NRL_NODE_NULL);
    switch (array.type_id()) {
    case arrow::Type::BOOL:
        return nrl_node_new_bool(memory, static_cast<const arrow::BooleanArray &>(array).Value(i));
    case arrow::Type::INT8:
        return int_node<arrow::Int8Array>(array, i, memory);
    case arrow::Type::INT16:
        return int_node<arrow::Int16Array>(array, i, memory);
    case arrow::Type::INT32:
        return int_node<arrow::Int32Array>(array, i, memory);
    case arrow::Type::INT64:
        return int_node<arrow::Int64Array>(array, i, memory);
    case arrow::Type::UINT8:
        return int_node<arrow::UInt8Array>(array, i, memory);
    case arrow::Type::UINT16:
        return int_node<arrow::UInt16Array>(array, i, memory);
    case arrow::Type::UINT32:
        return int_node<arrow::UInt32Array>(array, i, memory);
    case arrow::Type::UINT64: {
        uint64_t value = static_cast<const arrow::UInt64Array &>(array).Value(i);
        return value <= INT64_MAX ? nrl_node_new_int(memory, static_cast<int64_t>(value))
                                  : nrl_node_new_f64(memory, static_cast<double>(value));
    }
    case arrow::Type::FLOAT:
        return nrl_node_new_f64(memory, static_cast<const arrow::FloatArray &>(array).Value(i));
    case arrow::Type::DOUBLE:
        return nrl_node_new_f64(memory, static_cast<const arrow::DoubleArray &>(array).Value(i));
    case arrow::Type::STRING:
        return text_node<arrow::StringArray>(array, i, memory);
    case arrow::Type::LARGE_STRING:
        return text_node<arrow::LargeStringArray>(array, i, memory);
    case arrow::Type::STRING_VIEW:
        return text_node<arrow::StringViewArray>(array, i, memory);
    case arrow::Type::LIST:
        return list_of<arrow::ListArray>(array, i, memory);
    case arrow::Type::LARGE_LIST:
        return list_of<arrow::LargeListArray>(array, i, memory);
    case arrow::Type::FIXED_SIZE_LIST:
        return list_of<arrow::FixedSizeListArray>(array, i, memory);
    case arrow::Type::STRUCT:
        return struct_node(static_cast<const arrow::StructArray &>(array), i, memory);
    case arrow::Type::MAP:
        return map_node(static_cast<const arrow::MapArray &>(array), i, memory);
    case arrow::Type::DICTIONARY: {
        const auto &a = static_cast<const arrow::DictionaryArray &>(array);
        return value_node(*a.dictionary(), a.GetValueIndex(i), memory);
    }
    case arrow::Type::EXTENSION:
        return value_node(*static_cast<const arrow::ExtensionArray &>(array).storage(), i, memory);
    default: { // dates, times, decimals, half floats: their text
        std::string text = array.GetScalar(i).ValueOrDie()->ToString();
        return nrl_node_new_string(memory, text.data(), text.size());
    }
    }
}

// ---- files ----

// Record batches in order, from any of the three kinds of file.
class Batches
{
  public:
    virtual ~Batches() = default;
    virtual arrow::Status Next(std::shared_ptr<arrow::RecordBatch> *out) = 0; // null after the last one
    virtual std::shared_ptr<arrow::Schema> Schema() const = 0;
    virtual int64_t Rows() const
    {
        return -1;
    }
    // Skips the rows before the place without reading them, as far as that is possible; returns the rows that are
    // left before it. Called before Next.
    virtual arrow::Result<int64_t> Skip(const arrow_place &place)
    {
        return place.row;
    }
};

class StreamBatches : public Batches
{
  public:
    explicit StreamBatches(std::shared_ptr<arrow::RecordBatchReader> reader) : reader_(std::move(reader)) {}
    arrow::Status Next(std::shared_ptr<arrow::RecordBatch> *out) override
    {
        return reader_->ReadNext(out);
    }
    std::shared_ptr<arrow::Schema> Schema() const override
    {
        return reader_->schema();
    }

  private:
    std::shared_ptr<arrow::RecordBatchReader> reader_;
};

// A stream in a file. Its end is marked, so that a file that was cut off between two batches is noticed.
class MarkedBatches : public StreamBatches
{
  public:
    MarkedBatches(std::shared_ptr<arrow::RecordBatchReader> reader, std::shared_ptr<arrow::io::RandomAccessFile> file)
        : StreamBatches(std::move(reader)), file_(std::move(file))
    {
    }
    arrow::Status Next(std::shared_ptr<arrow::RecordBatch> *out) override
    {
        static constexpr std::string_view mark("\xFF\xFF\xFF\xFF\0\0\0\0", 8);
        ARROW_RETURN_NOT_OK(StreamBatches::Next(out));
        if (*out) return arrow::Status::OK();
        ARROW_ASSIGN_OR_RAISE(const int64_t at, file_->Tell());
        ARROW_ASSIGN_OR_RAISE(auto end, file_->ReadAt(at > 8 ? at - 8 : 0, 8));
        if (std::string_view(reinterpret_cast<const char *>(end->data()), static_cast<size_t>(end->size())) == mark)
            return arrow::Status::OK();
        errno = 0;
        return arrow::Status::Invalid("the stream ends after byte ", at,
                                      " without the mark of its end: it is truncated");
    }

  private:
    std::shared_ptr<arrow::io::RandomAccessFile> file_;
};

class FileBatches : public Batches
{
  public:
    explicit FileBatches(std::shared_ptr<arrow::ipc::RecordBatchFileReader> reader) : reader_(std::move(reader)) {}
    arrow::Status Next(std::shared_ptr<arrow::RecordBatch> *out) override
    {
        *out = nullptr;
        if (at_ == reader_->num_record_batches()) return arrow::Status::OK();
        return reader_->ReadRecordBatch(at_++).Value(out);
    }
    arrow::Result<int64_t> Skip(const arrow_place &place) override
    {
        at_ = static_cast<int>(std::min<int64_t>(place.batch, reader_->num_record_batches()));
        return place.at;
    }
    std::shared_ptr<arrow::Schema> Schema() const override
    {
        return reader_->schema();
    }

  private:
    std::shared_ptr<arrow::ipc::RecordBatchFileReader> reader_;
    int at_ = 0;
};

// A Parquet file, one row group after another; decodes the given columns only.
class GroupBatches : public Batches
{
  public:
    GroupBatches(std::unique_ptr<parquet::arrow::FileReader> reader, const std::vector<std::string> &columns)
        : reader_(std::move(reader)), all_(columns.empty())
    {
        const auto *schema = reader_->parquet_reader()->metadata()->schema();
        for (int i = 0; i < schema->num_columns(); i++)
            for (const std::string &name : columns)
                if (schema->GetColumnRoot(i)->name() == name) leaves_.push_back(i);
    }
    arrow::Status Open()
    {
        ARROW_ASSIGN_OR_RAISE(auto none, Read({}));
        schema_ = none->schema();
        return arrow::Status::OK();
    }
    arrow::Status Next(std::shared_ptr<arrow::RecordBatch> *out) override
    {
        for (*out = nullptr; !*out; group_ += !*out) {
            if (!batches_ && group_ == reader_->num_row_groups()) break;
            if (!batches_) ARROW_RETURN_NOT_OK(Read({group_}).Value(&batches_));
            ARROW_RETURN_NOT_OK(batches_->ReadNext(out));
            if (!*out) batches_.reset();
        }
        return arrow::Status::OK();
    }
    std::shared_ptr<arrow::Schema> Schema() const override
    {
        return schema_;
    }
    int64_t Rows() const override
    {
        return reader_->parquet_reader()->metadata()->num_rows();
    }
    arrow::Result<int64_t> Skip(const arrow_place &place) override
    {
        int64_t left = place.row;
        for (; group_ < reader_->num_row_groups(); group_++) {
            const int64_t rows = reader_->parquet_reader()->metadata()->RowGroup(group_)->num_rows();
            if (left < rows) break;
            left -= rows;
        }
        return left;
    }

  private:
    arrow::Result<std::unique_ptr<arrow::RecordBatchReader>> Read(const std::vector<int> &groups)
    {
        return all_ ? reader_->GetRecordBatchReader(groups) : reader_->GetRecordBatchReader(groups, leaves_);
    }

    std::unique_ptr<parquet::arrow::FileReader> reader_; // outlives batches_
    std::unique_ptr<arrow::RecordBatchReader> batches_;  // of group_; null before its first batch
    std::shared_ptr<arrow::Schema> schema_;
    std::vector<int> leaves_;
    bool all_;
    int group_ = 0;
};

arrow::Status open_parquet(std::shared_ptr<arrow::io::RandomAccessFile> file, const std::vector<std::string> &columns,
                           std::unique_ptr<Batches> *out)
{
    parquet::ArrowReaderProperties properties(/*use_threads=*/false);
    properties.set_batch_size(kRows);
    properties.set_pre_buffer(false); // which would read whole row groups in threads of its own
    parquet::arrow::FileReaderBuilder builder;
    ARROW_RETURN_NOT_OK(builder.Open(std::move(file)));
    ARROW_ASSIGN_OR_RAISE(auto reader, builder.properties(properties)->Build());
    auto groups = std::make_unique<GroupBatches>(std::move(reader), columns);
    ARROW_RETURN_NOT_OK(groups->Open());
    *out = std::move(groups);
    return arrow::Status::OK();
}

} // namespace

struct arrow_reader {
    const char *path;
    std::vector<std::string> columns; // empty: all
    std::unique_ptr<Batches> batches;
    std::vector<std::shared_ptr<arrow::Field>> fields; // that are read
    std::vector<int> index;                            // of each field in a batch
    std::shared_ptr<arrow::RecordBatch> batch;
    arrow_place place = {}; // place.at: rows of `batch` that were given
};

struct arrow_rows {
    std::vector<std::string> names;
    std::vector<std::shared_ptr<arrow::Array>> columns;
    int64_t n;
};

namespace
{

arrow::Status open_batches(arrow_reader *r)
{
    ARROW_ASSIGN_OR_RAISE(auto file, arrow::io::ReadableFile::Open(r->path));
    ARROW_ASSIGN_OR_RAISE(auto magic, file->ReadAt(0, 6));
    const std::string_view begin(reinterpret_cast<const char *>(magic->data()), static_cast<size_t>(magic->size()));
    if (begin.substr(0, 4) == "PAR1") return open_parquet(file, r->columns, &r->batches);
    auto options = arrow::ipc::IpcReadOptions::Defaults();
    options.use_threads = false;
    if (begin == "ARROW1") {
        ARROW_ASSIGN_OR_RAISE(auto reader, arrow::ipc::RecordBatchFileReader::Open(file, options));
        r->batches = std::make_unique<FileBatches>(std::move(reader));
        return arrow::Status::OK();
    }
    if (begin.substr(0, 4) != "\xFF\xFF\xFF\xFF")
        return arrow::Status::Invalid("neither a Parquet nor an Arrow file; is it truncated?");
    ARROW_RETURN_NOT_OK(file->Seek(0));
    ARROW_ASSIGN_OR_RAISE(auto reader, arrow::ipc::RecordBatchStreamReader::Open(file, options));
    r->batches = std::make_unique<MarkedBatches>(std::move(reader), file);
    return arrow::Status::OK();
}

nrl_status choose_columns(arrow_reader *r)
{
    const auto schema = r->batches->Schema();
    for (const std::string &name : r->columns)
        if (schema->GetFieldIndex(name) < 0)
            return nrl_fail(NRL_ERR_CONFIG, "%s: reader.columns: the table has no column '%s'", r->path, name.c_str());
    for (int i = 0; i < schema->num_fields(); i++) {
        const auto &field = schema->field(i);
        bool wanted = r->columns.empty();
        for (const std::string &name : r->columns)
            wanted = wanted || name == field->name();
        if (!wanted) continue;
        if (const arrow::DataType *type = unreadable(*field->type()))
            return nrl_fail(NRL_ERR_DATA,
                            "%s: cannot read column '%s': values of type %s are neither texts nor numbers\n"
                            "hint: reader: {name: parquet, columns: [NAME, ...]} names the columns to read",
                            r->path, field->name().c_str(), type->ToString().c_str());
        if (schema->GetFieldIndex(field->name()) < 0)
            return nrl_fail(NRL_ERR_DATA, "%s: two columns have the same name, '%s'", r->path, field->name().c_str());
        r->fields.push_back(field);
        r->index.push_back(i);
    }
    return NRL_OK;
}

} // namespace

extern "C" nrl_status arrow_reader_open(const char *path, const nrl_node *columns, arrow_reader **out)
{
    struct stat st;
    if (stat(path, &st))
        return nrl_fail(errno == ENOENT || errno == ENOTDIR ? NRL_ERR_CONFIG : NRL_ERR_IO, "%s: %s", path,
                        strerror(errno));
    if (!S_ISREG(st.st_mode)) return nrl_fail(NRL_ERR_CONFIG, "%s: not a regular file", path);
    arrow_reader *r = nullptr;
    nrl_status status = guarded(path, [&] {
        r = new arrow_reader{};
        r->path = path;
        for (size_t i = 0; i < nrl_node_size(columns); i++)
            r->columns.emplace_back(nrl_node_string(nrl_node_at(columns, i), ""));
        return open_batches(r);
    });
    if (status == NRL_OK) {
        nrl_status chosen = NRL_OK;
        status = guarded(path, [&] {
            chosen = choose_columns(r);
            return arrow::Status::OK();
        });
        if (status == NRL_OK) status = chosen;
    }
    if (status == NRL_OK)
        *out = r;
    else
        arrow_reader_close(r);
    return status;
}

extern "C" void arrow_reader_close(arrow_reader *r)
{
    delete r;
}

extern "C" int64_t arrow_reader_n_rows(const arrow_reader *r)
{
    return r->batches->Rows();
}

// r->batch is null after the last one.
static arrow::Status next_batch(arrow_reader *r)
{
    if (r->batch) r->place.batch++;
    r->place.at = 0;
    ARROW_RETURN_NOT_OK(r->batches->Next(&r->batch));
    for (size_t k = 0; r->batch && k < r->index.size(); k++)
        ARROW_RETURN_NOT_OK(r->batch->column(r->index[k])->ValidateFull());
    return arrow::Status::OK();
}

extern "C" void arrow_reader_tell(const arrow_reader *r, arrow_place *out)
{
    *out = r->place;
}

extern "C" nrl_status arrow_reader_seek(arrow_reader *r, const arrow_place *place)
{
    return guarded(r->path, [&]() -> arrow::Status {
        ARROW_ASSIGN_OR_RAISE(int64_t left, r->batches->Skip(*place));
        while (left) {
            ARROW_RETURN_NOT_OK(next_batch(r));
            if (!r->batch) return arrow::Status::Invalid("it no longer contains row ", place->row + 1);
            r->place.at = std::min(left, r->batch->num_rows());
            left -= r->place.at;
        }
        r->place.row = place->row;
        r->place.batch = place->batch;
        return arrow::Status::OK();
    });
}

extern "C" nrl_status arrow_reader_next(arrow_reader *r, arrow_rows **rows)
{
    *rows = nullptr;
    return guarded(r->path, [&]() -> arrow::Status {
        while (!r->batch || r->place.at == r->batch->num_rows()) {
            ARROW_RETURN_NOT_OK(next_batch(r));
            if (!r->batch) return arrow::Status::OK();
        }
        auto found = std::make_unique<arrow_rows>();
        found->n = std::min(kRows, r->batch->num_rows() - r->place.at);
        for (size_t k = 0; k < r->fields.size(); k++) {
            found->names.push_back(r->fields[k]->name());
            found->columns.push_back(r->batch->column(r->index[k])->Slice(r->place.at, found->n));
        }
        r->place.at += found->n;
        r->place.row += found->n;
        *rows = found.release();
        return arrow::Status::OK();
    });
}

extern "C" void arrow_rows_close(arrow_rows *rows)
{
    delete rows;
}

extern "C" int64_t arrow_rows_n(const arrow_rows *rows)
{
    return rows->n;
}

extern "C" nrl_status arrow_rows_read(const arrow_rows *rows, int64_t i, nrl_arena *memory, nrl_node **row)
{
    return guarded("row", [&] {
        *row = nrl_node_new(memory, NRL_NODE_MAP);
        for (size_t k = 0; k < rows->columns.size(); k++)
            nrl_node_put(memory, *row, rows->names[k].c_str(), value_node(*rows->columns[k], i, memory));
        return arrow::Status::OK();
    });
}
